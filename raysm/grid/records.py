"""What the store of a grid hands out, and how it lies in its tables: rows of SQLite flow in, frozen values flow out.

Apart from the store, so that what a row holds changes here (and in ``schema.py``), and what is asked of them there.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raysm.contract.home import Clock
from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from raysm.request.codec import from_json

__all__ = [
    "Event",
    "GridRecord",
    "TaskRecord",
    "attempt_record",
    "grid_record",
    "task_record",
    "task_row",
]

NAME_CHARACTERS = 24
"""Of the grid's name in the names of its jobs, which have 63."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRecord:
    """The grid as a whole."""

    name: str
    """As the user named it."""
    run: str
    """Six characters that tell it from a later grid of the same name."""
    state: str
    """``open``, ``paused``, ``stopping`` or ``closed``."""
    why: str
    """Why it is paused; empty otherwise."""
    rules: Rules
    """What holds for all of it."""
    template: str
    """The request of which each task's is made, as JSON."""
    source: str
    """Where the rows come from, as JSON."""
    created_s: float
    """When it was made."""
    goes_on: bool
    """Whether the user has said that it goes on although its first tasks failed."""
    clock: Clock
    """By which all of its moments are told, whoever looks at it: that of the service that its jobs were sent to."""

    @property
    def prefix(self) -> str:
        """With what the names of all its jobs begin, and no other grid's."""
        # Names of jobs have ASCII letters, digits and hyphens, 63 in all; users' names of grids have anything.
        letters = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in self.name)
        return f"{letters[:NAME_CHARACTERS].strip('-') or 'grid'}-{self.run}-"

    def job_name(self, task: Task, number: int) -> str:
        """Return the name of a task's job: of its key and number alone, so that the same try is the same job."""
        return f"{self.prefix}{task.key_hash}-a{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRecord:
    """A task, and what became of it."""

    task: Task
    """The row."""
    state: TaskState
    """Where it stands."""
    retries_left: int
    """Tries that it has left where its own program fails."""
    attempts: int
    """Number of its last attempt."""
    reason: str
    """Why it failed, waits or is impossible."""
    forgiven: int = 0
    """Number of its last attempt when its user asked for it again: up to that one none counts any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A line of the log that a person reads."""

    seq: int
    at_s: float
    task: str | None
    attempt: str | None
    was: str
    now: str
    text: str


def task_row(task: Task, template_digest: str, done: Callable[[str], bool] | None, retries: int) -> tuple[Any, ...]:
    """Return a task as its first row; see ``Store.add``."""
    defaults = {field.name: field.default for field in dataclasses.fields(Task)}
    content = {
        field.name: value
        for field in dataclasses.fields(Task)
        # Only what the row says: of 100,000 rows all else would be most of the file.
        if (value := getattr(task, field.name)) != defaults[field.name] and value != {}
    }
    digest = f"{template_digest}{task.digest}"
    state = TaskState.SKIPPED if done is not None and done(digest) else TaskState.WAITING
    shape = json.dumps([task.region, task.instance_types, task.count, task.spot, task.image])
    return (
        task.key, task.position, json.dumps(content), digest, task.region, shape, task.priority,
        task.expected_s or 0.0, state.value, retries,
    )  # fmt: skip


def grid_record(row: Any) -> GridRecord:
    """Return the row of the grid as a value."""
    values = {field.name: row[field.name] for field in dataclasses.fields(GridRecord) if field.name != "clock"}
    rules, clock = _rules(row["rules"]), Clock(speed=row["clock_speed"], begun_s=row["clock_begun_s"])
    # SQLite knows no truth values: what a STRICT table gives back is 0 or 1.
    return GridRecord(**values | {"rules": rules, "clock": clock, "goes_on": bool(row["goes_on"])})


@functools.lru_cache(maxsize=16)
def _rules(text: str) -> Rules:
    # Every step asks for the grid several times, and its rules change when a user says so.
    return from_json(Rules, json.loads(text), "rules")


@functools.lru_cache(maxsize=1024)
def _task(text: str) -> Task:
    # Those that wait are read whenever a place is looked for, and of most of them nothing becomes that time.
    content = json.loads(text)
    content["instance_types"] = tuple(content.get("instance_types", ()))
    return Task(**content)


def task_record(row: Any) -> TaskRecord:
    """Return a row of the table of tasks as a value."""
    return TaskRecord(
        task=_task(row["content"]),
        state=TaskState(row["state"]),
        retries_left=row["retries_left"],
        attempts=row["attempts"],
        reason=row["reason"],
        forgiven=row["forgiven"],
    )


_ATTEMPT = tuple(field.name for field in dataclasses.fields(Attempt))


def attempt_record(row: Any) -> Attempt:
    """Return a row of the table of attempts as a value."""
    values = {name: row[name] for name in _ATTEMPT}
    values["state"] = AttemptState(row["state"])
    values["spot"], values["is_doubtful"] = bool(row["spot"]), bool(row["is_doubtful"])
    return Attempt(**values)
