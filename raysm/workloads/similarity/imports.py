"""Imports of Ray's workers in a similarity, before their first task."""

from raysm.bootstrap.ray_internals import spare_pydantic
from raysm.workloads.similarity import modes

__all__ = ["modes"]

spare_pydantic()
