"""A row of a grid, the states that it can have, and how it differs from the row of its source."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from raysm.errors import InvalidRequest

Value: TypeAlias = str | int | float | bool | None
"""Types of a column's values: those that JSON, SQL and templates share."""

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Of names that are drawn or hashed: base 32 in lower case, without 1 and l, which look alike."""

HASH_CHARACTERS = 8
"""Length of a key's hash in a job's name: with 40 bits, two of 100,000 rows share one in 1 grid of
200."""

UNKNOWN_S = 3600.0
"""Assumed duration of a row whose duration is unknown, so that places are compared by their
prices."""


def row_label(position: int, key: str = "") -> str:
    """Return how messages name a row: ``row 3 (stuttgart)``. They count rows from 1."""
    number = f"row {position + 1}"
    return f"{number} ({key})" if key else number


class RowState(StrEnum):
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
        return self not in OPEN_STATES


OPEN_STATES = (RowState.PLACED, RowState.WAITING)
"""States of rows that are not over."""

RETRYABLE_STATES = (RowState.FAILED, RowState.IMPOSSIBLE, RowState.STOPPED)
"""States of rows that ended without a result, which ``retry`` queues again."""

STATES_BY_URGENCY = (*RETRYABLE_STATES, *OPEN_STATES, RowState.DONE)
"""All states; rows that need the user come first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
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
                f"{self.label}: its key is empty; choose a key column with a value in each row"
            )
        for channel in self.inputs.keys() & self.manifests.keys():
            raise InvalidRequest(
                f"{self.label}: input_{channel} and manifest_{channel} "
                f"both give the channel {channel!r}; leave one of the two empty"
            )
        for name in ("count", "max_runtime_s"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{self.label}: {name} must be at least 1, got {value}")

    @property
    def label(self) -> str:
        return row_label(self.position, self.key)

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
