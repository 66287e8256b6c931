"""Keeps what the dashboard shows, for when the cluster is gone: on the head, in little time and bounded memory.

What flows in are the answers of this instance's own dashboard, looked at every few seconds, what flows out is one
record. A dashboard that does not answer leaves a gap, and never holds up a job.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from raysm.contract.dashboard_record import SNAPSHOT, DashboardRecord, line_of, task_summaries
from raysm.contract.events import Metric
from raysm.contract.node_usage import NODES, samples_of

__all__ = ["RAY_LOGS", "DashboardRecorder", "Read"]

RAY_LOGS = Path("session_latest", "logs")
"""Below Ray's temporary folder: what lies there is read out by the dashboard, to whoever has the token."""

SAMPLE_S = 15.0
"""A look takes the dashboard about 10 ms: less than a thousandth of one core."""

FIRST_S = 5.0
"""After the dashboard came up, which took a core just now: a short job is not to wait for it."""

WHOLE_SHARE = 0.009
"""Of one core, looks at everything take at most: after one of a second the next one comes 111 s later. What the looks
at the instances alone take, less than a thousandth, makes it a hundredth. The more tasks a cluster has had, the longer
it takes; a head that is killed leaves what was seen last.
"""

MOST_SAMPLES = 20_000
"""Of all instances together, about 100 kB when they are written."""

MOST_JOBS = 20
"""Of so many of Ray's jobs the progress is kept: most clusters have one."""

END_SHARE = 0.02
END_MOST_S = 2.0
"""The last look takes at most such a share of the time that the dashboard was there: nobody waits for it noticeably."""

Read: TypeAlias = Callable[[str], Awaitable[Any]]
"""Returns the dashboard's answer to a path with its query; raises OSError or ValueError where there is none."""


class DashboardRecorder:
    """The record of one dashboard."""

    def __init__(
        self,
        read: Read,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
        history: Path | None = None,
    ) -> None:
        """Have seen nothing yet.

        Args:
            read: Asks the dashboard.
            clock: Returns seconds since the epoch.
            stopwatch: Returns seconds that only ever grow.
            history: The file in which the samples so far are told while the job runs; None is nowhere.
        """
        self._history = history
        self._read, self._clock, self._stopwatch = read, clock, stopwatch
        self._began_s = stopwatch()
        self._answers: dict[str, Any] = {}
        self._rounds: list[list[Metric]] = []
        self._every = 1
        self._seen_s = 0.0
        self._whole_again_s = 0.0

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        await asyncio.sleep(FIRST_S)
        count = 0
        while True:
            await self.look(count)
            count += 1
            await asyncio.sleep(SAMPLE_S)

    async def look(self, count: int) -> None:
        """Look at the instances, and at everything where that has cost little enough for as long as it is ago."""
        began_s = self._stopwatch()
        if began_s >= self._whole_again_s:
            await self._snapshot()
            ended_s = self._stopwatch()
            self._whole_again_s = ended_s + (ended_s - began_s) / WHOLE_SHARE
        else:
            await self._keep(NODES)
        self._sample(count)

    async def finish(self) -> DashboardRecord | None:
        """Look a last time, for a moment; return the record, None where the dashboard was never seen."""
        within_s = min(END_MOST_S, END_SHARE * (self._stopwatch() - self._began_s))
        # What has come by then has replaced what was there before, answer by answer.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._snapshot(), within_s)
        self._sample(0)
        if not self._answers:
            return None
        samples = tuple(sample for round_ in self._rounds for sample in round_)
        return DashboardRecord(time_s=self._seen_s, answers=self._answers, samples=samples)

    async def _snapshot(self) -> None:
        # One after the other: the dashboard shares its cores with the work, and the first are the most important.
        for key in SNAPSHOT:
            await self._keep(key)
        jobs = [job.get("job_id") for job in self._answers.get("api/jobs/", ())]
        for job in [job for job in jobs if job][:MOST_JOBS]:
            for key in task_summaries(job):
                await self._keep(key)

    async def _keep(self, key: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._answers[key] = await self._read(key)
            self._seen_s = self._clock()

    def _sample(self, count: int) -> None:
        # An answer in another form has no values; the job goes on.
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            samples = samples_of(self._answers[NODES], self._seen_s)
            if count % self._every == 0:
                self._rounds.append(samples)
                self._tell("a", [samples])
        if sum(map(len, self._rounds)) > MOST_SAMPLES:
            # Half of what there is, and half as often from now on: the job may last for days.
            self._rounds, self._every = self._rounds[::2], self._every * 2
            self._tell("w", self._rounds)

    def _tell(self, mode: str, rounds: Iterable[Sequence[Metric]]) -> None:
        # A line at a time: to write all of it at each look would take more than the look itself.
        if self._history is not None:
            with contextlib.suppress(OSError), self._history.open(mode) as file:
                file.writelines(map(line_of, rounds))
