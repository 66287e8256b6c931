"""Steps of Metaflow that run on a cluster: the decorator ``raysm``."""

from typing import Any

__all__ = ["raysm"]


def __getattr__(name: str) -> Any:
    # Instances import this package too, and need no Metaflow.
    if name != "raysm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from raysm.features.metaflow.decorator import RaysmDecorator

    return RaysmDecorator
