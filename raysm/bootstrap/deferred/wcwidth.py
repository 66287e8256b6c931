"""The package ``wcwidth``, brought when the width of a text is first asked for.

Ray imports it in each of its processes, for the tables that its commands print: 0.02 s of a core of the 0.4 s that
``import ray`` takes, for it is tables of Unicode. What flows in is any name that it has.
"""

from typing import Any

try:
    from raysm_deferred import Package
except ModuleNotFoundError:  # as a part of raysm
    from raysm.bootstrap.deferred.raysm_deferred import Package

_package = Package("wcwidth")
__path__ = _package.path


def __getattr__(name: str) -> Any:
    return _package.ask(name)
