"""Imports of a process that only computes a similarity; Ray's workers import this module before their first task."""

import sys

from raysm.bootstrap import ray_internals
from raysm.workloads.similarity import modes

__all__ = ["modes"]

# Ray's serializers of pydantic's models take 0.1 s to import, and no task of a similarity sends one.
if "pydantic" not in sys.modules:
    sys.modules["pydantic"] = None  # type: ignore[assignment]
    ray_internals.PYDANTIC.find()
    del sys.modules["pydantic"]
