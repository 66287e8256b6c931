"""Grids of this machine: their names, where their jobs were sent, and whether another machine runs them."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.store import put, read_json
from raysm.errors import InvalidRequest
from raysm.grid.store import Store, folder, path_of
from raysm.request import Target
from raysm.request.codec import from_json, to_json


@contextlib.contextmanager
def opened(name: str) -> Iterator[Store]:
    """Open the store of a grid.

    Raises:
        InvalidRequest: There is no grid of this name; the message lists the existing ones.
    """
    path = path_of(name)
    if not path.exists():
        names = ", ".join(grid_names()) or "none"
        raise InvalidRequest(f"there is no grid {path.stem!r} in {path.parent}; existing grids: {names}")
    store = Store(path)
    try:
        yield store
    finally:
        # Not Store.close, which releases a lease.
        store.database.close()


def grid_names() -> list[str]:
    """Return the names of the grids of this home."""
    return sorted(path.stem for path in folder().glob("*.db"))


def only_grid() -> str:
    """Return the name of the only grid.

    Raises:
        InvalidRequest: There are several, or none.
    """
    names = grid_names()
    if len(names) != 1:
        raise InvalidRequest(f"name the grid; this machine has {', '.join(names) or 'none'}")
    return names[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class GridTarget:
    """The target of a grid's jobs, stored beside the grid's file."""

    target: Target
    is_shared: bool
    """True if other machines may run the grid from its copy in the target's bucket."""


def keep_target(store: Path, target: GridTarget) -> None:
    """Store the target of a grid's jobs."""
    put(store.with_suffix(".target"), json.dumps(to_json(target), indent=1))


def read_target(store: Path) -> GridTarget | None:
    """Return the target of a grid's jobs; None if no controller ran the grid here.

    Raises:
        InvalidConfig: The file is not JSON.
        InvalidRequest: The file holds something else.
    """
    path = store.with_suffix(".target")
    return from_json(GridTarget, read_json(path), str(path)) if path.exists() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _HandedOver:
    """The target whose bucket holds the copies of a grid that another machine runs."""

    target: Target


def _handed_over_path(store: Path) -> Path:
    # Not in the store, which the next controller here replaces by a copy.
    return store.with_suffix(".elsewhere")


def keep_handover(store: Path, target: Target) -> None:
    """Store that another machine runs a grid, and the target whose bucket holds its copies."""
    put(_handed_over_path(store), json.dumps(to_json(_HandedOver(target=target)), indent=1))


def handover_target(store: Path) -> Target | None:
    """Return the target whose bucket holds a grid that was handed over; None for others. Raises as ``read_target``."""
    path = _handed_over_path(store)
    return from_json(_HandedOver, read_json(path), str(path)).target if path.exists() else None


def forget_handover(store: Path) -> None:
    """Delete the note of a handover, since a controller of this machine runs the grid."""
    _handed_over_path(store).unlink(missing_ok=True)
