"""Corrections: rows of a source that differ from those of the same key that the grid recorded."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.core.request.workload import plain
from raysm.features.grid.endings import region_of_checkpoints
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.store.store import Store

DIFFERS = "differs from the source: "
"""Part of the reason of a row that keeps other values than its source has."""

PREFIXES = {
    "inputs": "input_",
    "manifests": "manifest_",
    "environment": "env_",
    "tags": "tag_",
    "parameters": "",
}
"""Prefix of the column's name, for each field of a row that holds several columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    grid: str
    key: str
    state: RowState
    changes: Mapping[str, tuple[Any, Any]]
    """The recorded value and the source's, by column; None if a value is missing."""

    @property
    def is_taken(self) -> bool:
        """Whether the row takes the source's values: it is not done, and no job of it is open."""
        return self.state not in (RowState.DONE, RowState.PLACED)

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
        if self.state is RowState.PLACED:
            return f"{self.key} {self.text}; its open job keeps the recorded values"
        return (
            f"{self.key} is {self.state.value} and is kept; it {self.text}; "
            "to compute it again, give it a new key"
        )


def differences(old: Row, new: Row) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ, by column; a row's position in its source does not count."""
    columns: list[tuple[str, Any, Any]] = []
    for each in dataclasses.fields(Row):
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


def correct(store: Store, rows: Iterable[Row]) -> list[Difference]:
    """Compare rows with the recorded ones of the same key, and return those that differ.

    Rows that are waiting, failed, stopped or impossible take the new values, and their earlier
    attempts no longer count. Rows that are done or have an open job keep theirs, and their
    reason says so.
    """
    grid = store.grid()
    differing = []
    with store.database.transaction("corrected", fenced=False):
        for row in rows:
            record = store.rows.get(row.key)
            changes = differences(record.row, row)
            if record.state is RowState.DONE:
                # Its job is over: another time limit changes nothing of it.
                changes.pop("max_runtime_s", None)
            reason = record.reason.partition(DIFFERS)[0].removesuffix("; ")
            if changes:
                difference = Difference(
                    grid=grid.name, key=row.key, state=record.state, changes=changes
                )
                differing.append(difference)
                if difference.is_taken:
                    region = region_of_checkpoints(store.attempts.of_row(row.key))
                    store.rows.replace(row, region, grid.rules.retries)
                    continue
                reason = f"{reason}; {difference.text}" if reason else difference.text
            if reason != record.reason:
                store.rows.set_reason(row.key, reason)
    return differing
