"""Where a grid's jobs were sent, in a file beside its store: so that its name alone is enough to stop them."""

import json
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.store import put, read_json
from raysm.request import Target
from raysm.request.codec import from_json, to_json

__all__ = ["GridTarget", "keep_target", "read_target"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GridTarget:
    """The content of the file."""

    target: Target
    is_shared: bool
    """Whether controllers of other machines may run the grid, by its copy in the target's bucket."""


def keep_target(store: Path, target: GridTarget) -> None:
    """Write the file of a grid, named by its store."""
    put(_path(store), json.dumps(to_json(target), indent=1))


def read_target(store: Path) -> GridTarget | None:
    """Return where the jobs of a grid were sent; None if no controller of this version ran it here.

    Raises:
        InvalidConfig: The file is not JSON.
        InvalidRequest: The file holds something else.
    """
    path = _path(store)
    return from_json(GridTarget, read_json(path), str(path)) if path.exists() else None


def _path(store: Path) -> Path:
    return store.with_suffix(".target")
