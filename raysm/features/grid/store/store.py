"""The store of a grid: its record and its state, and the parts for rows, attempts and costs.

It decides nothing and calls no service. Methods that write run inside the caller's transaction or
open their own.
"""

import dataclasses
import functools
import json
import operator
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from raysm.core.protocol.home import Clock, home
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.row import ALPHABET, Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.attempts import Attempts
from raysm.features.grid.store.costs import Costs, Rates
from raysm.features.grid.store.database import GridDatabase
from raysm.features.grid.store.events import EventLog
from raysm.features.grid.store.orphans import Orphans
from raysm.features.grid.store.rows import OPEN, Rows

# The name becomes a file's name, part of jobs' names, and a word of the commands in messages.
NAME = re.compile(r"[^\W_][\w. -]{0,99}")

NAME_CHARACTERS = 24
"""Characters of the grid's name in the names of its jobs, which have at most 63."""


def folder(root: Path | None = None) -> Path:
    return home(root) / "grids"


def path_of(name: str, root: Path | None = None) -> Path:
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            "a grid's name is 1-100 letters, digits, spaces and . _ -, "
            f"the first a letter or digit; got {name!r}"
        )
    return folder(root) / f"{name}.db"


def prefix_of(grid: str) -> str:
    """Return the beginning of the names of a grid's jobs; other grids may share it."""
    # Names of jobs have ASCII letters, digits and hyphens; names of grids have any letters.
    letters = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in grid)
    return f"{letters[:NAME_CHARACTERS].strip('-') or 'grid'}-"


class GridState(StrEnum):
    """The state of a grid."""

    OPEN = "open"
    """Its waiting rows get jobs."""
    PAUSED = "paused"
    """Its waiting rows get no jobs until the user continues it; open jobs keep running."""
    STOPPING = "stopping"
    """The user stopped it, and some rows are not over."""
    CLOSED = "closed"
    """All rows are over; further rows open it again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRecord:
    name: str
    run: str
    """Six characters that tell it from a later grid of the same name."""
    state: GridState
    why: str
    rules: Rules
    template: str
    source: str
    created_s: float
    goes_on: bool
    """True if the user continues the grid although its first rows failed (``--go-on``)."""
    clock: Clock
    """The clock of the service that its jobs were sent to; all its times are on this clock."""

    @property
    def prefix(self) -> str:
        """The beginning of the names of its jobs, unique to this grid."""
        return f"{prefix_of(self.name)}{self.run}-"

    def job_name(self, row: Row, number: int) -> str:
        """Return the name of a row's job.

        It is a function of key and number, so that the same attempt is the same job.
        """
        return f"{self.prefix}{row.key_hash}-a{number}"


class Store:
    """One grid.

    Attributes:
        database: The file, its transactions and the lease.
        rows, attempts, orphans, costs, rates, events: The statements of each subject.
    """

    def __init__(
        self, path: Path | str, *, between: Callable[[str], None] = lambda point: None
    ) -> None:
        self.database = GridDatabase(path, between=between)
        self._execute = self.database.execute
        self.events = EventLog(self.database)
        self.rows = Rows(self.database, self.events)
        self.attempts = Attempts(self.database, self.events)
        self.orphans = Orphans(self.database, self.events)
        self.costs = Costs(self.database)
        self.rates = Rates(self.database)

    def close(self) -> None:
        self.database.release_lease()
        self.database.close()

    # -- the grid

    def make(
        self, name: str, *, rules: Rules, now: float, template: str = "{}", source: str = "{}"
    ) -> GridRecord:
        with self.database.transaction("grid", durable=True, fenced=False):
            if self._execute("SELECT 1 FROM grid").fetchone() is None:
                # A later grid of the same name must not mistake this grid's jobs for its own.
                run = "".join(secrets.choice(ALPHABET) for _ in range(6))
                self._execute(
                    "INSERT INTO grid (name, run, state, why, rules, template, source, created_s) "
                    "VALUES (?, ?, 'open', '', ?, ?, ?, ?)",
                    (name, run, json.dumps(to_json(rules)), template, source, now),
                )
        return self.grid()

    def grid(self) -> GridRecord:
        values = self._execute("SELECT * FROM grid").fetchone()
        if values is None:
            raise InvalidRequest(
                f"{self.database.path} has no grid yet; raysm grid run creates one"
            )
        return _record(_values_of(values))

    def change_rules(self, rules: Rules, *, template: str | None = None) -> None:
        with self.database.transaction("rules", fenced=False):
            self._execute("UPDATE grid SET rules = ?", (json.dumps(to_json(rules)),))
            if template is not None:
                self._execute("UPDATE grid SET template = ?", (template,))

    def change_clock(self, clock: Clock) -> None:
        with self.database.transaction("clock", fenced=False):
            self._execute(
                "UPDATE grid SET clock_speed = ?, clock_begun_s = ?", (clock.speed, clock.begun_s)
            )

    def note_plan(self, usd: tuple[float, float] | None) -> None:
        with self.database.transaction("plan", fenced=False):
            self._execute(
                "UPDATE grid SET planned_low_usd = ?, planned_high_usd = ?", usd or (None, None)
            )

    # -- its state

    def change_state(
        self, state: GridState, now: float, *, why: str = "", fenced: bool = True
    ) -> None:
        with self.database.transaction(f"grid {state}", durable=True, fenced=fenced):
            was = self._execute("SELECT state FROM grid").fetchone()[0]
            # The user's stop wins over a pause that the controller decides at the same time.
            if (was, state) != (GridState.STOPPING, GridState.PAUSED):
                self._execute("UPDATE grid SET state = ?, why = ?", (state, why))
                self.events.add(now, was, state, why)

    def request_stop(self, now: float) -> bool:
        """Let the grid's controller stop its jobs; return False if the grid is closed.

        A closed grid has no controller: it would be "stopping" for ever.
        """
        if self.grid().state is GridState.CLOSED:
            return False
        self.change_state(GridState.STOPPING, now, why="the user stops it", fenced=False)
        return True

    def go_on(self, now: float) -> None:
        with self.database.transaction("go on", fenced=False):
            self._execute("UPDATE grid SET state = 'open', why = '', goes_on = 1")
            self.events.add(now, GridState.PAUSED, GridState.OPEN, "the user goes on")

    def close_if_over(self, now: float) -> bool:
        """Close the grid and release the lease if nothing is left to do; return whether it did.

        In one transaction: a row that another process adds comes before it, and the grid stays
        open, or after it, and that process gets the lease.
        """
        with self.database.transaction("grid closed", durable=True):
            if self.attempts.open_count() or self.orphans.may_exist(now):
                return False
            was = self._execute("SELECT state FROM grid").fetchone()[0]
            if was in (GridState.OPEN, GridState.STOPPING):
                if not self.rows.are_final():
                    return False
                self._execute("UPDATE grid SET state = 'closed', why = ''")
                self.events.add(now, was, GridState.CLOSED, "")
            self.database.end_lease()
        return True

    # -- its rows

    def add(self, rows: Iterable[Row]) -> int:
        """Add the rows whose keys are new, and open a closed grid again; return how many are."""
        retries = self.grid().rules.retries
        with self.database.transaction("rows", fenced=False):
            added = self.rows.add(rows, retries)
            self._execute("UPDATE grid SET state = 'open' WHERE state = 'closed'")
            return added

    def requeue(self, states: Iterable[str], now: float) -> int:
        """Queue the rows in these final states again, with all their retries; return the count."""
        retries = self.grid().rules.retries
        chosen = [state for state in states if RowState(state).is_final]
        with self.database.transaction("again", fenced=False):
            ended = f"state IN ({', '.join('?' * len(chosen))})"
            number = int(self.database.value(f"SELECT count(*) FROM task WHERE {ended}", *chosen))
            seq = self.events.add(now, "", "waiting", f"{number} rows are tried again")
            # Otherwise the user's database would show their old states until they are sent.
            self._execute(
                f"INSERT OR REPLACE INTO outbox (task, seq) SELECT key, ? FROM task WHERE {ended}",
                (seq, *chosen),
            )
            changes = "state = 'waiting', retries_left = ?, after_s = 0, reason = ''"
            self._execute(f"UPDATE task SET {changes} WHERE {ended}", (retries, *chosen))
            # Also for rows that wait or run, since the user may have corrected the program of all
            # rows.
            self._execute(f"UPDATE task SET forgiven = attempts WHERE {OPEN}")
            # Places that have refused for a day would make the same rows fail again at once.
            self._execute("DELETE FROM block")
            self._execute("UPDATE region SET closed_s = 0, failures = 0, since_s = NULL")
            # A closed grid without such rows has nothing to do.
            self._execute(
                "UPDATE grid SET state = 'open', why = '' WHERE state <> 'closed' OR ?", (number,)
            )
        return number

    def remove_intents(self, attempts: Iterable[Attempt], now: float) -> None:
        """Remove intents that were never sent, within a transaction; their rows wait again."""
        for attempt in attempts:
            self.attempts.remove(attempt, now)
            record = self.rows.get(attempt.row_key)
            reason = f"{attempt.region} does not answer"
            self.rows.move(attempt.row_key, RowState.PLACED, RowState.WAITING, now, reason=reason)
            if record.attempts == attempt.number:
                self.rows.set_attempts(attempt.row_key, attempt.number - 1)

    def add_orphan(self, name: str, region: str, attempt: Attempt | None, now: float) -> None:
        """Record an orphaned job within a transaction; ``attempt`` is its own, if one is known."""
        if attempt is None:
            self.orphans.add(name, region, now, row_key=self._key_of_job(name))
        else:
            self.orphans.add(
                name,
                region,
                now,
                row_key=attempt.row_key,
                count=attempt.count,
                usd_per_hour=attempt.usd_per_hour,
                max_runtime_s=attempt.max_runtime_s,
            )

    def _key_of_job(self, name: str) -> str | None:
        """Return the key whose hash is in a job's name.

        This reads all rows, which is fine since orphaned jobs are rare.
        """
        digits = name.removeprefix(self.grid().prefix).partition("-")[0]
        return next(
            (record.row.key for record in self.rows.all() if record.row.key_hash == digits), None
        )


_COLUMNS = (
    *(field.name for field in dataclasses.fields(GridRecord) if field.name != "clock"),
    "clock_speed",
    "clock_begun_s",
)
_values_of = operator.itemgetter(*_COLUMNS)


# Cached, since every step reads the grid several times.
@functools.lru_cache(maxsize=16)
def _record(values: tuple[Any, ...]) -> GridRecord:
    fields = dict(zip(_COLUMNS, values, strict=True))
    fields["clock"] = Clock(speed=fields.pop("clock_speed"), begun_s=fields.pop("clock_begun_s"))
    fields["state"] = GridState(fields["state"])
    fields["rules"] = from_json(Rules, json.loads(fields["rules"]), "rules")
    fields["goes_on"] = bool(fields["goes_on"])
    return GridRecord(**fields)
