"""A row of a grid as a task, and how two versions of a row differ."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.request.workload import plain

__all__ = ["DIFFERS", "Difference", "KEY_CHARACTERS", "MAX_RUNTIME_S", "Task", "UNKNOWN_S", "Value", "differences"]

Value: TypeAlias = str | int | float | bool | None
"""What a column may hold: what JSON has, and SQL, and a template can write."""

KEY_CHARACTERS = 8
"""Of the hash of a key in a job's name: 40 bits, so that of 100,000 rows two share one in 1 grid of 200."""

MAX_RUNTIME_S = 86_400
"""Of a row that says none: what raysm.Limits has by default."""

UNKNOWN_S = 3600.0
"""Of a row whose time nobody knows: then places are compared by their prices alone, and rows are all alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One row. What it leaves open, the grid's own request decides.

    Raises:
        InvalidRequest: A field cannot be.
    """

    key: str
    """The user's name of the row: of one grid no two are alike."""
    position: int = 0
    """Number of the row in its source, from 0."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """The columns that raysm does not know, by name: what templates take, and the hyperparameters."""
    region: str | None = None
    """Where its data lie; None is anywhere."""
    instance_types: tuple[str, ...] = ()
    """Any of these, the best first; empty is the grid's."""
    count: int | None = None
    """Instances of its cluster."""
    spot: bool | None = None
    """Whether it takes spare capacity."""
    image: str | None = None
    """URI of its image."""
    priority: int = 0
    """The higher, the earlier."""
    max_runtime_s: int | None = None
    """Seconds after which the service stops its job."""
    expected_s: float | None = None
    """Seconds that it will take, as the user believes."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """URIs by the channel's name."""
    manifests: Mapping[str, str] = field(default_factory=dict)
    """URIs of manifests by the channel's name: of channels that have some of the objects below a prefix."""
    input_bytes: int | None = None
    """Bytes that would travel where it runs away from its region; None is unknown."""
    checkpoint: str | None = None
    """URI of its checkpoints."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of its job."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Of its job, beside the grid's."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.key:
            raise InvalidRequest(f"row {self.position}: its key is empty; choose a key column with a value in each row")
        for channel in self.inputs.keys() & self.manifests.keys():
            raise InvalidRequest(
                f"row {self.position} ({self.key}): input_{channel} and manifest_{channel} both give the channel "
                f"{channel!r}; leave one of the two empty"
            )
        if self.count is not None and self.count < 1:
            raise InvalidRequest(f"row {self.position} ({self.key}): count must be at least 1, got {self.count}")
        if self.max_runtime_s is not None and self.max_runtime_s < 1:
            raise InvalidRequest(
                f"row {self.position} ({self.key}): max_runtime_s must be at least 1, got {self.max_runtime_s}"
            )

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where each of its channels is told of, by name: of data, or of a manifest of them."""
        return {**self.inputs, **self.manifests}

    @property
    def work(self) -> float:
        """How much there is to do, in seconds that the user believes in; of who says nothing an hour."""
        return self.expected_s or UNKNOWN_S

    @property
    def key_hash(self) -> str:
        """What stands for the key in the names of its jobs: lower-case base 32, as names may not hold every text."""
        number = int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:5], "big")
        # Our own digits: base64.b32encode's are upper case, and its 1 and l are told apart by nobody who reads a log.
        return "".join("abcdefghijkmnpqrstuvwxyz23456789"[number >> 5 * place & 31] for place in range(KEY_CHARACTERS))

    @property
    def digest(self) -> str:
        """SHA-256 of all of the row that its result depends on; where it stands in its source changes nothing."""
        decisive = {
            "parameters": dict(self.parameters),
            "instance_types": self.instance_types,
            "count": self.count,
            "image": self.image,
            "inputs": dict(self.inputs),
            "checkpoint": self.checkpoint,
            "environment": dict(self.environment),
        }
        # Left out where there are none: rows of grids that were made before there were any are the same ones.
        if self.manifests:
            decisive["manifests"] = dict(self.manifests)
        return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()


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

    for each in dataclasses.fields(Task):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if each.name in COLUMNS:
            for name in sorted({*before, *after}):
                if _differ(before.get(name), after.get(name)):
                    add(COLUMNS[each.name] + name, before.get(name), after.get(name))
        elif each.name != "position" and before != after:
            add(each.name, before, after)
    return changes
