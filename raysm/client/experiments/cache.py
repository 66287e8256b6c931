"""What was read of jobs that have ended, kept on this machine: one SQLite file for each account and region.

::

    HOME/experiments/WHERE.sqlite    a row for each job by its ARN, and apart, which few ask for, its curves and trials

A job that has ended changes no more, so that it is read once. The file is a copy of what the service knows: one that
is torn, or of another version, is thrown away and made anew. Several processes may use it at a time.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from raysm.client.experiments.curves import Curve
from raysm.client.experiments.experiment import Experiment

__all__ = ["Cache"]

VERSION = 2
"""Of what a row holds: a file of another one is made anew."""

BUSY_S = 10.0
"""Seconds to wait for another process that writes."""

SCHEMA = """
create table if not exists jobs (arn text primary key, row text not null);
create table if not exists curves (arn text, name text, points text not null, primary key (arn, name));
create table if not exists trials (arn text, number integer, row text not null, primary key (arn, number));
"""


class Kept(Protocol):
    """What is kept of a job."""

    @property
    def row(self) -> Experiment:
        """What the table shows."""

    @property
    def curves(self) -> Mapping[str, Curve]:
        """Its metrics' curves."""

    @property
    def trials(self) -> Sequence[Experiment]:
        """Its trials, where it is a sweep."""


class Cache:
    """Jobs that have ended; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Keep them in the file ``path``, which is made when the first one is kept."""
        self._path = path

    def rows(self) -> dict[str, Experiment]:
        """Return the jobs that are kept, by their ARNs; none where the file cannot be read."""
        if not self._path.exists():
            return {}
        try:
            with self._opened() as file:
                return {arn: Experiment.of_json(row) for arn, row in file.execute("select arn, row from jobs")}
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError):
            # Torn, or by a later version: it is but a copy, and is made anew.
            self._discard()
            return {}

    def curves(self, arn: str, names: Iterable[str]) -> dict[str, Curve]:
        """Return the curves of a job that are kept, of these names."""
        if not self._path.exists():
            return {}
        with contextlib.suppress(sqlite3.DatabaseError), self._opened() as file:
            rows = dict(file.execute("select name, points from curves where arn = ?", (arn,)))
            return {name: [tuple(point) for point in json.loads(rows[name])] for name in names if name in rows}
        return {}

    def trials(self, arn: str) -> list[Experiment]:
        """Return the trials of a sweep that are kept, by their numbers; none of a job that has none."""
        if not self._path.exists():
            return []
        with contextlib.suppress(sqlite3.DatabaseError, ValueError, TypeError, KeyError), self._opened() as file:
            rows = file.execute("select row from trials where arn = ? order by number", (arn,))
            return [Experiment.of_json(row) for (row,) in rows]
        return []

    def keep(self, jobs: Iterable["Kept"]) -> None:
        """Keep jobs that have ended, all of them or none; a full disk or a read-only home is no reason to fail."""
        every = list(jobs)
        if not every:
            return
        # A disk that is full, or a home that cannot be written, costs time and nothing else.
        with contextlib.suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._opened() as file:
                file.executemany(
                    "insert or replace into jobs values (?, ?)", [(job.row.arn, job.row.as_json()) for job in every]
                )
                file.executemany(
                    "insert or replace into curves values (?, ?, ?)",
                    [(job.row.arn, name, json.dumps(curve)) for job in every for name, curve in job.curves.items()],
                )
                file.executemany(
                    "insert or replace into trials values (?, ?, ?)",
                    [(job.row.arn, trial.trial, trial.as_json()) for job in every for trial in job.trials],
                )

    def forget(self, arns: Iterable[str]) -> None:
        """Forget jobs that the service does not know any more."""
        rows = [(arn,) for arn in arns]
        if rows and self._path.exists():
            with contextlib.suppress(sqlite3.Error), self._opened() as file:
                file.executemany("delete from jobs where arn = ?", rows)
                # By hand: SQLite heeds foreign keys only where each connection asks for it.
                file.executemany("delete from curves where arn = ?", rows)
                file.executemany("delete from trials where arn = ?", rows)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        file = sqlite3.connect(self._path, timeout=BUSY_S)
        try:
            with file:
                version = file.execute("pragma user_version").fetchone()[0]
                # 0 is a file that was made just now.
                if version not in (0, VERSION):
                    raise sqlite3.DatabaseError(f"{self._path} is of version {version}")
                file.executescript(SCHEMA)
                file.execute(f"pragma user_version = {VERSION}")
                yield file
        finally:
            # sqlite3's own context manager ends the transaction, and leaves the file open.
            file.close()

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
