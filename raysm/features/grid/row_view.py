"""The rows of a grid as users see them, each with its last job and its costs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.features.grid.row import RowState, Value
from raysm.features.grid.store.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRow:
    """One row of a grid.

    Unknown values are None. Region, instance type, count and spot are those of its last job.
    """

    key: str
    """The user's name of the row."""
    state: RowState
    """``waiting``, ``placed``, ``done``, ``failed``, ``stopped`` or ``impossible``."""
    reason: str
    """Why it failed, waits or is impossible; else empty."""
    attempts: int
    """Number of its jobs."""
    job: str | None
    """Name of its last job."""
    region: str | None
    instance_type: str | None
    count: int | None
    spot: bool | None
    sent_s: float | None
    """When the service accepted the last job, in seconds since the epoch."""
    started_s: float | None
    """When its instances began to work."""
    ended_s: float | None
    """When it ended."""
    usd: float | None
    """The cost of all its jobs; None before any has ended, and if the cost of one is unknown."""
    interruptions: int = 0
    """How often spot capacity was taken back from its jobs."""
    rate: float | None
    """The last rate that its job reported (``Rules.rate``)."""
    parameters: Mapping[str, Value]
    """The user's own columns."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "state": self.state.value}


def check_state(state: str | None) -> None:
    if state is not None and state not in list(RowState):
        raise InvalidRequest(f"a row's state is one of {', '.join(RowState)}, got {state!r}")


def row_views(store: Store, state: str | None = None) -> Iterator[GridRow]:
    for row in store.rows.views(state or ""):
        columns = {
            name: row[name]
            for name in GridRow.__slots__
            if name not in ("state", "spot", "parameters")
        }
        yield GridRow(
            **columns,
            state=RowState(row["state"]),
            spot=None if row["spot"] is None else bool(row["spot"]),
            parameters=json.loads(row["content"]).get("parameters", {}),
        )
