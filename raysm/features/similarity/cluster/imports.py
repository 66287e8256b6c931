"""Imports of Ray's workers in a similarity, before their first task."""

from raysm.features.similarity.cluster import modes
from raysm.instance.ray_internals import spare_pydantic

__all__ = ["modes"]

spare_pydantic()
