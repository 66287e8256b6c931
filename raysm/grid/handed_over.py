"""What this machine remembers of a grid that it has handed over: where to look for it, by its name alone.

A target flows in when another machine is to run the grid, and flows out for whoever asks for the grid here: the file of
this machine would tell how it stood when it was handed over, and a wish that is left there nobody would find.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.store import put, read_json
from raysm.request import Target
from raysm.request.codec import from_json, to_json

__all__ = ["forget", "keep", "target_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _HandedOver:
    """The content of the file."""

    target: Target
    """In whose bucket the copies of the grid lie."""


def keep(store: Path, target: Target) -> None:
    """Remember that another machine runs a grid.

    Args:
        store: The grid's file on this machine.
        target: In whose bucket its copies lie.
    """
    put(_path(store), json.dumps(to_json(_HandedOver(target=target)), indent=1))


def target_of(store: Path) -> Target | None:
    """Return where the copies of a grid lie that was handed over; None of one that was not.

    Raises:
        InvalidConfig: The file that says so cannot be read.
        InvalidRequest: It says what cannot be.
    """
    path = _path(store)
    return from_json(_HandedOver, read_json(path), str(path)).target if path.exists() else None


def forget(store: Path) -> None:
    """Have this machine's file be what is known of the grid again: a controller of this machine runs it."""
    _path(store).unlink(missing_ok=True)


def _path(store: Path) -> Path:
    # Beside the grid's file, and not in it: that is what the next controller here takes over from another one.
    return store.with_suffix(".elsewhere")
