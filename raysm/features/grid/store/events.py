"""The log of a grid: changes of state, in the order of the transactions that made them."""

from dataclasses import dataclass
from typing import Any

from raysm.features.grid.store.database import GridDatabase


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    seq: int
    at_s: float
    row_key: str | None
    attempt: str | None
    was: str
    now: str
    text: str


class EventLog:
    def __init__(self, database: GridDatabase) -> None:
        self._database = database

    def add(
        self,
        now: float,
        was: str,
        state: str,
        text: str,
        *,
        row_key: str | None = None,
        attempt: str | None = None,
    ) -> int:
        values = (now, row_key, attempt, str(was), str(state), text)
        done = self._database.execute(
            "INSERT INTO event (at_s, task, attempt, was, now, text) VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )
        return int(done.lastrowid or 0)

    def has(self, text: str) -> bool:
        return (
            self._database.execute("SELECT 1 FROM event WHERE text = ? LIMIT 1", (text,)).fetchone()
            is not None
        )

    def after(self, seq: int = 0, limit: int = 1000) -> list[Event]:
        found = self._database.execute(
            "SELECT * FROM event WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit)
        )
        return list(map(_record, found))


def _record(values: Any) -> Event:
    names = ("seq", "at_s", "attempt", "was", "now", "text")
    return Event(row_key=values["task"], **{name: values[name] for name in names})
