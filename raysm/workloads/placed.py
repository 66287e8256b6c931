"""Blocks that say where they run and what comes along with them."""

from collections.abc import Sequence
from typing import Any

__all__ = ["PlacedBlock", "host_of", "hosts_of", "inputs_of"]


class PlacedBlock:
    """A block that says where it runs and what comes along; ``map_blocks`` asks no other block.

    Inherit it, and have what there is to say as a field or a property:

    - ``host``: the instance that the block runs on, ``algo-2``; None is any;
    - ``needs``: names of other instances that have to be there;
    - ``inputs``: objects of Ray whose values the function is given after the block: they travel while the block waits
      for its CPU.

    Example::

        @dataclass(frozen=True)
        class Shard(raysm.PlacedBlock):
            name: str
            host: str
    """

    # Nothing but the name: an attribute here would become the default of the dataclass's field.
    __slots__ = ()


def host_of(block: object) -> str | None:
    """Return the instance that a block runs on; None is any."""
    host: str | None = _told_by(block, "host", None)
    return host


def hosts_of(block: object) -> tuple[str, ...]:
    """Return the instances that a block cannot do without."""
    host = host_of(block)
    needs: Sequence[str] = _told_by(block, "needs", ())
    return (*(() if host is None else (host,)), *needs)


def inputs_of(block: object) -> Sequence[Any]:
    """Return the objects of Ray whose values the function is given after the block."""
    inputs: Sequence[Any] = _told_by(block, "inputs", ())
    return inputs


def _told_by(block: object, name: str, default: Any) -> Any:
    # Any object may be a block, and one of the user's may have an attribute of that name that means something else.
    return getattr(block, name, default) if isinstance(block, PlacedBlock) else default
