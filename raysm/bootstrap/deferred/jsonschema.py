"""The package ``jsonschema``, executed when something is first checked against a schema.

Every process of Ray imports it, for the plugins of runtime environments, and checks nothing until somebody asks for one
(``ray/_private/runtime_env/plugin_schema_manager.py``). It takes 75 ms of the 320 of ``import ray``, most of them for
the packages by which it can check formats.
"""

from raysm.bootstrap.later import bring_later

__all__ = ["NAME"]

NAME = "jsonschema"

bring_later(NAME, __file__)
