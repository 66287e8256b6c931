"""The modules of the client that users name: ``raysm.client.submit.prepare``."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysm.core.client import options as options
    from raysm.core.client import submit as submit

__all__: list[str] = []

_MODULES = ("options", "submit")


def __getattr__(name: str) -> Any:
    # It works after ``import raysm`` alone, and costs nothing before.
    if name not in _MODULES:
        raise AttributeError(f"module 'raysm.client' has no attribute {name!r}")
    return importlib.import_module(f"raysm.core.client.{name}")
