"""A session as a whole: its calls, its namespace, its notices to clients, and its end."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.events import State
from raysm.contract.session import CLOSING, WARNING, SessionState, Versions
from raysm.errors import InvalidRequest
from raysm.workloads.report import EmitEvent
from raysm.workloads.session.blobs import Blobs
from raysm.workloads.session.calls import Calls, Executor
from raysm.workloads.session.cells import Cells
from raysm.workloads.session.lifetime import End, Lifetime, Looks, duration
from raysm.workloads.session.remote_calls import RemoteCalls

__all__ = ["Description", "SessionHost"]

LOOK_S = 1.0
"""How often it is looked whether the end is due."""

JOBS_S = 5.0
"""How often Ray is asked for its jobs while one runs."""

INTERRUPTED_S = 2.0
"""How long calls that run have at the end: ``with Session`` is to be over within 5 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a session is told of itself."""

    job: str
    """The job that it is."""
    hosts: tuple[str, ...]
    """Its instances, the head first."""
    folder: Path
    """Where its calls and cells run."""


class SessionHost:
    """One session.

    Attributes:
        calls: All of them.
        cells: The namespace.
        remote: What runs on any instance.
        blobs: Large values.
        notices: What every client is to know, in the order in which it came up.
        loop: The server's.
    """

    def __init__(
        self,
        description: Description,
        cells: Cells,
        executors: Mapping[str, Executor],
        remote: RemoteCalls,
        lifetime: Lifetime,
        jobs: Looks,
        emit: EmitEvent,
        blobs: Blobs,
    ) -> None:
        """Begin; in the server's loop.

        Args:
            description: What it is told of itself.
            cells: The namespace of the head.
            executors: What does its calls, by their kind.
            remote: What runs on any instance.
            lifetime: When it ends by itself.
            jobs: What works in it and is no call: jobs of its Ray, kernels.
            emit: Writes an event into the job's log.
            blobs: Large values.
        """
        self._description, self._lifetime, self._jobs, self._emit = description, lifetime, jobs, emit
        self.cells, self.remote = cells, remote
        self.blobs = blobs
        self.calls = Calls(executors, blobs, lifetime.active)
        self.loop = asyncio.get_running_loop()
        self.notices: list[str] = []
        self._closed = asyncio.Event()
        # The end of which was warned: a later one, after keep(), is worth another warning.
        self._told: End | None = None
        self._running_jobs, self._looked_at_jobs_s = 0, 0.0
        self._on_notice: Callable[[], None] = lambda: None

    # What clients ask for

    def state(self) -> SessionState:
        """Return how it is."""
        now_s = time.monotonic()
        end = self._end(now_s)
        cpus, gpus = self.remote.totals()
        return SessionState(
            job=self._description.job,
            versions=Versions.here(),
            hosts=self._description.hosts,
            cpus=cpus,
            gpus=gpus,
            busy=self.calls.busy + self._running_jobs,
            clients=self._lifetime.clients(now_s),
            uptime_s=self._lifetime.uptime_s(now_s),
            ends_in_s=None if end is None else max(0.0, end.at_s - now_s),
            ends_why="" if end is None else end.why,
            closing=self.calls.closing,
            usd=self._lifetime.usd(now_s),
            usd_per_hour=self._lifetime.rules.usd_per_hour,
            budget_usd=self._lifetime.rules.budget_usd,
            folder=str(self._description.folder),
        )

    def heard(self, client: str) -> None:
        """A client is there."""
        self._lifetime.heard(client, time.monotonic())

    def left(self, client: str) -> None:
        """A client goes."""
        self._lifetime.left(client, time.monotonic())

    def active(self) -> None:
        """Something was done that is no call."""
        self._lifetime.active(time.monotonic())

    def keep(self, seconds: float) -> None:
        """Put off the idle end."""
        self._lifetime.keep(time.monotonic() + seconds)

    def path(self, text: str) -> Path:
        """Return the file that a client means; relative to the folder of the calls.

        Raises:
            InvalidRequest: The path is empty.
        """
        if not text:
            raise InvalidRequest("the path of the session's file is empty")
        return self._description.folder / text

    def close(self, why: str) -> None:
        """Begin the end: calls that run are interrupted, and no more are taken."""
        # The first reason stays: what comes behind is a consequence of it.
        self.calls.closing = self.calls.closing or why
        self._closed.set()

    # How it lives

    async def live(self, on_notice: Callable[[], None]) -> str:
        """Wait for the end, and end all calls; return why it ended.

        Args:
            on_notice: Called when there is one more.
        """
        self._on_notice = on_notice
        while not self._closed.is_set():
            await self._look()
            with contextlib.suppress(asyncio.TimeoutError):
                # A look each second, and an end at once: the clock is asked, and the event need not be waited for.
                await asyncio.wait_for(self._closed.wait(), LOOK_S)
        why = self.calls.closing
        self._notify(CLOSING, f"the session ends: {why}", why)
        await self.calls.close(why, INTERRUPTED_S)
        return why

    async def _look(self) -> None:
        now_s = time.monotonic()
        if self.calls.busy:
            self._lifetime.active(now_s)
        # While a job runs its end has to be seen: the time of idleness begins there.
        if self._running_jobs and now_s - self._looked_at_jobs_s >= JOBS_S:
            await self._look_at_jobs(now_s)
        end = self._end(now_s)
        if end is None or now_s < end.warn_at_s:
            return
        # Asked only now: each look is a call of Ray's dashboard.
        await self._look_at_jobs(now_s)
        end = self._end(now_s)
        if end is None or now_s < end.warn_at_s:
            return
        if now_s >= end.at_s:
            self.close(end.why)
        # A second of play: the end of an idle session moves by the time between two looks.
        elif self._told is None or end.at_s > self._told.at_s + LOOK_S:
            self._told = end
            left = duration(end.at_s - now_s)
            self._notify(WARNING, f"the session ends in {left} ({end.why}); keep(minutes=…) puts that off", end.why)

    def _end(self, now_s: float) -> End | None:
        return self._lifetime.end(now_s, is_busy=bool(self.calls.busy or self._running_jobs))

    async def _look_at_jobs(self, now_s: float) -> None:
        self._looked_at_jobs_s = now_s
        work = await self._jobs.look()
        self._running_jobs = work.running
        if work.idle_s is not None:
            self._lifetime.active(now_s - work.idle_s)

    def _notify(self, state: str, text: str, why: str) -> None:
        self.notices.append(text)
        self._emit(State(name=state, host=self._description.hosts[0], detail=text if state == WARNING else why))
        # Last: whoever is woken reads the notices at once.
        self._on_notice()
