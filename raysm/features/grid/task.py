"""The values of a grid: rows as tasks, their attempts, and the rules for all of them."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from raysm.core.client.costs.cap import STOP_GRACE_S
from raysm.core.request.options import check_amounts
from raysm.core.request.workload import plain
from raysm.errors import InvalidRequest

Value: TypeAlias = str | int | float | bool | None
"""Types of a column's values: those that JSON, SQL and templates share."""

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Of names that are drawn or hashed: base 32 in lower case, without 1 and l, which look alike."""

HASH_CHARACTERS = 8
"""Length of a key's hash in a job's name: with 40 bits, two of 100,000 rows share one in 1 grid of
200."""

MAX_RUNTIME_S = 86_400
"""Time limit of a row that sets none, the default of ``raysm.Limits``."""

UNKNOWN_S = 3600.0
"""Assumed duration of a row whose duration is unknown, so that places are compared by their
prices."""


def most_billed_s(max_runtime_s: int) -> int:
    """Return the most seconds that one instance of a job with this time limit is billed for."""
    return max_runtime_s + STOP_GRACE_S


class TaskState(StrEnum):
    """The state of a row."""

    WAITING = "waiting"
    """It has no open attempt and will get one."""
    PLACED = "placed"
    """It has an open attempt."""
    DONE = "done"
    """Its result exists."""
    FAILED = "failed"
    """It is not tried again: its program fails, or its retries are used up."""
    STOPPED = "stopped"
    """The user stopped it."""
    IMPOSSIBLE = "impossible"
    """No place can ever take it."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to the row by itself."""
        return self not in (TaskState.WAITING, TaskState.PLACED)


RETRYABLE_STATES = (TaskState.FAILED, TaskState.IMPOSSIBLE, TaskState.STOPPED)
"""States that ``retry`` queues again."""


class AttemptState(StrEnum):
    """The state of an attempt; only the service's answer ends one."""

    INTENDED = "intended"
    """It is stored and counted in the budget; the service may not know it yet."""
    MAYBE = "maybe"
    """It was sent, and the answer was lost: only the service knows whether there is a job."""
    SENT = "sent"
    """The service took it."""
    PENDING = "pending"
    """It waits for its instances."""
    RUNNING = "running"
    """It has its instances."""
    ENDED = "ended"
    """The service says that it has ended, or refused it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One row. The grid's request decides what the row leaves open."""

    key: str
    """The user's name of the row, unique in its grid."""
    position: int = 0
    """Number of the row in its source, from 0."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """The columns that raysm does not know: values for templates, and hyperparameters."""
    region: str | None = None
    """The region of its data; None means that it may run anywhere."""
    instance_types: tuple[str, ...] = ()
    """Types that fit, the best first; empty means the grid's."""
    count: int | None = None
    spot: bool | None = None
    image: str | None = None
    priority: int = 0
    """Rows with a higher priority are sent earlier."""
    max_runtime_s: int | None = None
    expected_s: float | None = None
    """The user's estimate of its duration."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    manifests: Mapping[str, str] = field(default_factory=dict)
    """URIs of manifests by channel, for channels that hold some of the objects below a prefix."""
    input_bytes: int | None = None
    """Bytes to move if the row runs in another region than its data; None is unknown."""
    checkpoint: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidRequest(
                f"row {self.position}: its key is empty; "
                "choose a key column with a value in each row"
            )
        for channel in self.inputs.keys() & self.manifests.keys():
            raise InvalidRequest(
                f"row {self.position} ({self.key}): input_{channel} and manifest_{channel} "
                f"both give the channel {channel!r}; leave one of the two empty"
            )
        for name in ("count", "max_runtime_s"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(
                    f"row {self.position} ({self.key}): {name} must be at least 1, got {value}"
                )

    @property
    def addresses(self) -> Mapping[str, str]:
        return {**self.inputs, **self.manifests}

    @property
    def work(self) -> float:
        """The expected seconds, or an hour."""
        return self.expected_s or UNKNOWN_S

    @property
    def key_hash(self) -> str:
        """A hash of the key for the names of its jobs, in lower-case base 32."""
        number = int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:5], "big")
        return "".join(ALPHABET[number >> 5 * place & 31] for place in range(HASH_CHARACTERS))

    @property
    def sending_order(self) -> tuple[float, float, int]:
        """Rows with less come first: by priority, the longest first, then as in the source."""
        return -self.priority, -(self.expected_s or 0.0), self.position

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the row that its result depends on."""
        decisive = {
            "parameters": dict(self.parameters),
            "instance_types": self.instance_types,
            "count": self.count,
            "image": self.image,
            "inputs": dict(self.inputs),
            "checkpoint": self.checkpoint,
            "environment": dict(self.environment),
            # Left out if empty, so that rows recorded before manifests existed keep their digests.
            **({"manifests": dict(self.manifests)} if self.manifests else {}),
        }
        return hashlib.sha256(
            json.dumps(decisive, sort_keys=True, default=str).encode()
        ).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try of a row: one job of the service, from the intent to its end.

    Times are seconds since the epoch on the controller's clock; None is not yet.
    """

    task: str
    number: int
    name: str
    """The job's name: a function of grid, key and number, so that sending it twice makes one
    job."""
    region: str
    instance_type: str
    count: int
    spot: bool = False
    state: AttemptState = AttemptState.INTENDED
    ending: str = ""
    """Class of its end (``raysm.features.grid.endings``); empty while it is open."""
    reason: str = ""
    intended_s: float = 0.0
    sent_s: float | None = None
    started_s: float | None = None
    """When its instances began to work, by the service's clock."""
    waited_s: float | None = None
    """Seconds from its creation to that moment, both by the service's clock.

    The controller may be suspended between reading its own clock and calling Create.
    """
    ended_s: float | None = None
    training_s: float | None = None
    """Seconds that it ran, as the service says."""
    billable_s: float | None = None
    """Seconds that one of its instances is billed for, as the service says."""
    max_runtime_s: int = MAX_RUNTIME_S
    """Seconds after which the service stops it; the budget counts them until it has ended."""
    usd_per_hour: float | None = None
    """On-demand price of one instance, the highest if there are several types; None is unknown."""
    price_version: str = ""
    calls: int = 0
    retry_s: float = 0.0
    is_doubtful: bool = False
    """True if the answer to a Create was lost, so that its job may still appear."""
    watch_s: float = 0.0
    """Time until which a refused attempt's job may appear and counts in the budget."""
    wish: str = ""
    """Why it should be stopped: ``user`` or ``patience``; empty if it should not."""
    asked_s: float | None = None
    """When the service was last asked to stop it."""
    seen: str = ""
    """Status and time that List last showed; a change causes a call of Describe."""
    choice: str = ""
    """Prices by type, as JSON, while the service chooses one of several types; else empty."""
    interruptions: int = 0
    """Number of times that its spot capacity was taken back; the service restarts the job each
    time."""
    interrupted_s: float = 0.0
    """Seconds that it had run at the interruptions."""

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(json.loads(self.choice)) if self.choice else (self.instance_type,)

    def settled(self, instance_type: str | None) -> dict[str, Any]:
        """Return the fields that change once the service has chosen one of several types."""
        if not self.choice or instance_type not in self.types:
            return {}
        return {
            "instance_type": instance_type,
            "usd_per_hour": json.loads(self.choice)[instance_type],
            "choice": "",
        }

    @property
    def usd(self) -> float | None:
        """Its cost; None, and never 0, if the price or the billed time is unknown."""
        if self.usd_per_hour is None or self.billable_s is None:
            return None
        return self.usd_per_hour * self.count * self.billable_s / 3600

    @property
    def again_usd(self) -> float:
        """The part of its cost, at most, for work done again after interruptions."""
        return (
            min(1.0, self.interrupted_s / self.training_s) * (self.usd or 0.0)
            if self.training_s
            else 0.0
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Rules for all rows of a grid.

    Raises:
        InvalidRequest: A value is out of range.
    """

    parallel: int = 200
    """Jobs at a time, over all regions."""
    retries: int = 2
    """Retries of a row whose own program failed; other failures do not count."""
    max_cost: float | None = None
    """USD that the jobs may cost together; open jobs count as if they ran to their limit. None is
    no limit."""
    budget_usd: float | None = None
    """The older name of ``max_cost``; it is None once the rules are made."""
    move_data: bool = False
    """True allows a row to run in another region than its data; reading them across regions then
    costs money."""
    any_type: bool = False
    """True lets the service choose among several instance types within one job
    (InstancePreferences), on demand only; False tries the types one after the other, a job for
    each."""
    write_back: bool = False
    """True writes the states of the rows to the database that the rows come from."""
    rate: str | None = None
    """Name of a metric of work per second of a whole job, for example ``images_per_s``: the program
    reports it (``raysm.report(images_per_s=750)``), or a metric definition of that name finds it.
    The grid adds up the jobs' rates. None measures nothing."""
    brake: int = 3
    """The grid pauses if this many of its first jobs all failed with the same reason; 0 disables
    this."""
    give_up_s: float = 86_400.0
    """Seconds after which a waiting row fails if none of its places takes jobs: each refuses all
    jobs or is in a region that does not answer, and no job of the grid runs there."""
    patience_s: float = 3_600.0
    """Seconds that a job waits for its instances before it is sent elsewhere."""

    def __post_init__(self) -> None:
        for name, minimum in (
            ("parallel", 1),
            ("retries", 0),
            ("brake", 0),
            ("give_up_s", 0),
            ("patience_s", 1),
        ):
            # "not >=" also refuses NaN.
            if not getattr(self, name) >= minimum:
                raise InvalidRequest(
                    f"Rules({name}=…) must be at least {minimum}, got {getattr(self, name)}"
                )
        if self.rate is not None and not 1 <= len(self.rate) <= 255:
            raise InvalidRequest(
                "Rules(rate=…) must be the name of a metric, "
                f"1 to 255 characters, got {self.rate!r}"
            )
        check_amounts("Rules", max_cost=self.max_cost, budget_usd=self.budget_usd)
        if self.budget_usd is not None:
            if self.max_cost is not None:
                raise InvalidRequest(
                    "Rules: budget_usd is the older name of max_cost; give max_cost alone"
                )
            object.__setattr__(self, "max_cost", self.budget_usd)
            object.__setattr__(self, "budget_usd", None)


DIFFERS = "differs from the source: "
"""Part of the reason of a row that keeps other values than its source has."""

PREFIXES = {
    "inputs": "input_",
    "manifests": "manifest_",
    "environment": "env_",
    "tags": "tag_",
    "parameters": "",
}
"""Prefix of the column's name, for each field of a task that holds several columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    grid: str
    key: str
    state: TaskState
    changes: Mapping[str, tuple[Any, Any]]
    """The recorded value and the source's, by column; None if a value is missing."""

    @property
    def is_taken(self) -> bool:
        """Whether the row takes the source's values: it is not done, and no job of it is open."""
        return self.state not in (TaskState.DONE, TaskState.PLACED)

    @property
    def text(self) -> str:
        kept = ", ".join(
            f"{name} is {old!r} in the grid and {new!r} in the source"
            for name, (old, new) in self.changes.items()
        )
        return f"{DIFFERS}{kept}"

    def __str__(self) -> str:
        if self.is_taken:
            taken = ", ".join(
                f"{name} was {old!r}, is {new!r}" for name, (old, new) in self.changes.items()
            )
            retry = (
                f"; to run it again: raysm grid retry {self.grid}" if self.state.is_final else ""
            )
            return f"{self.key} takes the corrected values of the source: {taken}{retry}"
        if self.state is TaskState.PLACED:
            return f"{self.key} {self.text}; its open job keeps the recorded values"
        return (
            f"{self.key} is {self.state.value} and is kept; it {self.text}; "
            "to compute it again, give it a new key"
        )


def differences(old: Task, new: Task) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ, by column; a row's position in its source does not count."""
    columns: list[tuple[str, Any, Any]] = []
    for each in dataclasses.fields(Task):
        before = getattr(old, each.name)
        after = getattr(new, each.name)
        if each.name in PREFIXES:
            for name in sorted({*before, *after}):
                was = before.get(name)
                now = after.get(name)
                # A CSV has "0.1" and a list 0.1, but the job gets the same text.
                if was != now and (None in (was, now) or str(was) != str(now)):
                    columns.append((PREFIXES[each.name] + name, was, now))
        elif each.name != "position" and before != after:
            columns.append((each.name, before, after))
    # plain() hides the value of a column that is named like a secret.
    return {name: (plain(name, was), plain(name, now)) for name, was, now in columns}
