"""How a recorded row of a grid differs from the row of the same key in its source."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysm.grid.attempt import TaskState
from raysm.grid.task import Task
from raysm.request.workload import plain

__all__ = ["DIFFERS", "Difference", "differences"]

DIFFERS = "differs from the source: "
"""How the reason of a row begins, or continues, that keeps other values than its source has."""

COLUMNS = {"inputs": "input_", "manifests": "manifest_", "environment": "env_", "tags": "tag_", "parameters": ""}
"""Prefix of the column's name, for each field of a task that holds several columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A row whose recorded values differ from its source."""

    key: str
    state: TaskState
    changes: Mapping[str, tuple[Any, Any]]
    """The recorded value and the source's, by column; None where one of them has none."""

    @property
    def is_taken(self) -> bool:
        """Whether the row takes the source's values: it is not done, and no job of it is open."""
        return self.state not in (TaskState.DONE, TaskState.SKIPPED, TaskState.PLACED)

    @property
    def text(self) -> str:
        """What the row keeps, and what its source has."""
        kept = ", ".join(f"{name} is {old!r} here and {new!r} there" for name, (old, new) in self.changes.items())
        return f"{DIFFERS}{kept}"

    def __str__(self) -> str:
        """Describe what has become of the row's values."""
        if self.is_taken:
            taken = ", ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in self.changes.items())
            return f"{self.key} takes the corrected values of the source: {taken}"
        if self.state is TaskState.PLACED:
            return f"{self.key} {self.text}; its open job keeps the recorded values"
        return f"{self.key} is {self.state.value} and is kept; it {self.text}; to compute it again, give it a new key"


def _differ(old: Any, new: Any) -> bool:
    # A CSV has "0.1" where a list has 0.1: the job is given the same text.
    return old != new and (None in (old, new) or str(old) != str(new))


def differences(old: Task, new: Task) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ, by column; the position of a row in its source is none of them."""
    changes: dict[str, tuple[Any, Any]] = {}

    def add(name: str, before: Any, after: Any) -> None:
        # A column named like a secret is not printed, as in the list of experiments.
        changes[name] = plain(name, before), plain(name, after)

    for field in dataclasses.fields(Task):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name in COLUMNS:
            for name in sorted({*before, *after}):
                if _differ(before.get(name), after.get(name)):
                    add(COLUMNS[field.name] + name, before.get(name), after.get(name))
        elif field.name != "position" and before != after:
            add(field.name, before, after)
    return changes
