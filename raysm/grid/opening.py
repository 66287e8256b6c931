"""Grids that there are: a name flows in, the store of that grid flows out, for as long as somebody looks."""

import contextlib
from collections.abc import Iterator

from raysm.errors import InvalidRequest
from raysm.grid.store import Store, folder, path_of

__all__ = ["grid_names", "only_grid", "opened"]


@contextlib.contextmanager
def opened(name: str) -> Iterator[Store]:
    """Open the store of a grid.

    Raises:
        InvalidRequest: There is none of this name; the message lists those that there are.
    """
    path = path_of(name)
    if not path.exists():
        names = ", ".join(grid_names()) or "none"
        raise InvalidRequest(f"there is no grid {path.stem!r} in {path.parent}; there are {names}")
    store = Store(path)
    try:
        yield store
    finally:
        # Not Store.close: that lets go of a lease, and who only looks has none.
        store.database.close()


def grid_names() -> list[str]:
    """Return the names of the grids of this home."""
    return sorted(path.stem for path in folder().glob("*.db"))


def only_grid() -> str:
    """Return the name of the only grid that there is.

    Raises:
        InvalidRequest: There are several, or none.
    """
    names = grid_names()
    if len(names) != 1:
        raise InvalidRequest(f"name the grid; this machine has {', '.join(names) or 'none'}")
    return names[0]
