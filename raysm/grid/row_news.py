"""What rows that share a job have done while it runs: the job's own record flows in, rows that are done flow out.

A pack may take an hour, and its first row is done after minutes. The record is an object in S3, whose calls no quota of
the grid's own limits; it is looked at once in a while, and of a region that does not answer at the next time.
"""

import contextlib
import functools
from collections.abc import Mapping
from operator import attrgetter

from raysm.contract.result import RowOutcome
from raysm.grid.attempt import Attempt
from raysm.grid.outside import Outside, Silence
from raysm.grid.packs import note_progress
from raysm.grid.region import Region
from raysm.grid.store import Store

__all__ = ["FREE_NEWS_S", "NEWS_S", "RowNews", "ask_outcomes"]

NEWS_S = 60.0
"""Two calls of S3 for each job that runs: of 200 jobs half a cent an hour."""

FREE_NEWS_S = 5.0
"""Where nothing is billed, and jobs are short."""


class RowNews:
    """The rows of one grid that share jobs."""

    def __init__(self, store: Store, outside: Outside, *, pause_s: float = NEWS_S) -> None:
        """Look for the first time at once."""
        self._store = store
        self._outside = outside
        self._pause_s = pause_s
        self._due_s = float("-inf")

    def step(self, now: float) -> None:
        """Look at the record of every job that runs and has one, if the last time is long enough ago."""
        # The clock may have been set back: none is due later than a pause from now.
        if now < self._due_s <= now + self._pause_s:
            return
        self._due_s = now + self._pause_s

        def look_at(region: str, attempts: list[Attempt]) -> None:
            # The jobs do their work whether it is known or not: the sweep says which region is silent.
            with contextlib.suppress(Silence):
                for attempt in attempts:
                    outcomes = ask_outcomes(self._outside, attempt, now)
                    # One of each job: none is held back by what the next one has to say.
                    with self._store.database.transaction("news"):
                        note_progress(self._store, attempt, outcomes, now)

        self._outside.side_by_side(self._store.running_packs(), attrgetter("region"), look_at)


def ask_outcomes(outside: Outside, attempt: Attempt, now: float) -> Mapping[str, RowOutcome]:
    """Return what the record of an attempt's job says of its rows, by the hashes of their keys.

    Raises:
        Silence: The region did not answer.
    """
    # No bucket: S3 takes thousands of calls a second for each prefix.
    return outside.answer(attempt.region, "rows", now, functools.partial(_outcomes, attempt))


def _outcomes(attempt: Attempt, region: Region) -> Mapping[str, RowOutcome]:
    return region.outcomes(attempt)
