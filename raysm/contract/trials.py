"""The trials of a sweep as a file of its result: a JSON list, one object a trial, the best one named beside it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raysm.contract.events import Trial
from raysm.contract.store import put, read_json
from raysm.request.codec import from_json, to_json

__all__ = ["BEST", "TABLE", "TRIALS", "Trials", "best_of", "own_trials"]

TRIALS = "trials.json"
"""Name of the file, in the result's folder."""

TABLE = "trials.parquet"
"""Name of the same as a table: a column for each parameter and metric."""

BEST = "best"
"""Folder of what the best trial left: its last checkpoint, or what it wrote into $SM_MODEL_DIR."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trials:
    """All trials of a sweep."""

    metric: str
    """What counts."""
    mode: Literal["min", "max"]
    """Whether less of it is better, or more."""
    trials: tuple[Trial, ...]
    """By their numbers."""
    best: int | None
    """Number of the best one; None where none has a value."""
    notes: tuple[str, ...] = ()
    """What to know of how it went: which wish the cluster could not fulfil, what the time was too short for."""

    def write(self, folder: Path) -> Path:
        """Write it into ``folder``."""
        path = folder / TRIALS
        put(path, json.dumps(to_json(self), indent=1) + "\n")
        return path

    @staticmethod
    def read(folder: Path) -> "Trials":
        """Read what ``write`` wrote."""
        return from_json(Trials, read_json(folder / TRIALS), TRIALS)


def own_trials(folder: Path) -> Trials | None:
    """Return the trials that a sweep left in a folder; None if there are none, or a user's own file of that name."""
    try:
        return Trials.read(folder)
    except (OSError, ValueError):
        return None


def best_of(trials: Sequence[Trial], mode: str) -> Trial | None:
    """Return the trial whose last value is best, of equal ones the first; None where none has a value.

    Trials that were ended early count: what they had reached is a result like others.
    """
    having = [trial for trial in trials if trial.value is not None and trial.status in ("done", "stopped")]
    sign = 1 if mode == "min" else -1
    return min(having, key=lambda trial: (sign * (trial.value or 0.0), trial.number), default=None)
