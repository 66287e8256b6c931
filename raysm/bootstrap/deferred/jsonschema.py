"""The package ``jsonschema``, brought when something is first validated.

Ray imports it in each of its processes, for the runtime environments of which one of them checks a few: 0.04 s of a
core of the 0.4 s that ``import ray`` takes. What flows in is any name that it has.
"""

from typing import Any

try:
    from raysm_deferred import Package
except ModuleNotFoundError:  # as a part of raysm
    from raysm.bootstrap.deferred.raysm_deferred import Package

_package = Package("jsonschema")
__path__ = _package.path


def __getattr__(name: str) -> Any:
    return _package.ask(name)
