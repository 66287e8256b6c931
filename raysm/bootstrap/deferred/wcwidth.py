"""The package ``wcwidth``, executed when the width of a character is first asked for.

Every process of Ray imports it where it is installed, for the tables that it prints in notebooks
(``ray/_private/thirdparty/tabulate``). It takes 12 ms of the 320 of ``import ray``.
"""

from raysm.bootstrap.later import bring_later

__all__ = ["NAME"]

NAME = "wcwidth"

bring_later(NAME, __file__)
