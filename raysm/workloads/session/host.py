"""One session on the head: its calls, its namespace, its notices to clients, and its end."""

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
"""How often to check whether the session has to end."""

JOBS_S = 5.0
"""How often to ask Ray for its jobs while one runs."""

INTERRUPTED_S = 2.0
"""How long interrupted calls may take at the end, so that ``with Session`` closes within 5 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """The job, the instances and the folder of a session."""

    job: str
    """Name of the session's job."""
    hosts: tuple[str, ...]
    """Names of the instances, the head first."""
    folder: Path
    """Working folder of calls and cells."""


class SessionHost:
    """One session.

    Attributes:
        calls: All calls.
        cells: The head's namespace and its cells.
        remote: Batches, commands and scattered values.
        blobs: Large values.
        notices: Notices for all clients, the oldest first.
        loop: The server's event loop.
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
        """Create the session in the server's event loop.

        Args:
            description: The job, the instances and the folder.
            cells: The head's namespace and its cells.
            executors: The executors by kind of call.
            remote: Batches, commands and scattered values.
            lifetime: Decides when the session ends by itself.
            jobs: Reports work other than calls: Ray jobs and Jupyter kernels.
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
        # The end that the last warning announced. A later end, after keep(), gets another warning.
        self._warned_end: End | None = None
        self._running_jobs, self._looked_at_jobs_s = 0, 0.0
        self._on_notice: Callable[[], None] = lambda: None

    # Requests of clients

    def state(self) -> SessionState:
        """Return the current state."""
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
        """Record a heartbeat of a client."""
        self._lifetime.heard(client, time.monotonic())

    def left(self, client: str) -> None:
        """Record that a client has detached."""
        self._lifetime.left(client, time.monotonic())

    def active(self) -> None:
        """Record activity other than calls, such as a file transfer."""
        self._lifetime.active(time.monotonic())

    def keep(self, seconds: float) -> None:
        """Prevent an idle end for ``seconds``."""
        self._lifetime.keep(time.monotonic() + seconds)

    def path(self, text: str) -> Path:
        """Resolve a client's path, relative to the folder of the calls.

        Raises:
            InvalidRequest: The path is empty.
        """
        if not text:
            raise InvalidRequest("the path of the session's file is empty")
        return self._description.folder / text

    def close(self, why: str) -> None:
        """Begin the end: accept no more calls, and let ``live`` interrupt the running ones."""
        # Keep the first reason, because later ones are usually consequences.
        self.calls.closing = self.calls.closing or why
        self._closed.set()

    # Its life

    async def live(self, on_notice: Callable[[], None]) -> str:
        """Wait for the end of the session, and end all calls; return the reason of the end.

        Args:
            on_notice: Called after each new notice.
        """
        self._on_notice = on_notice
        while not self._closed.is_set():
            await self._look()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), LOOK_S)
        why = self.calls.closing
        self._notify(CLOSING, f"the session ends: {why}", why)
        await self.calls.close(why, INTERRUPTED_S)
        return why

    async def _look(self) -> None:
        now_s = time.monotonic()
        if self.calls.busy:
            self._lifetime.active(now_s)
        # The idle time begins at the end of the last job, so poll while one runs.
        if self._running_jobs and now_s - self._looked_at_jobs_s >= JOBS_S:
            await self._look_at_jobs(now_s)
        end = self._end(now_s)
        if end is None or now_s < end.warn_at_s:
            return
        # Otherwise jobs are polled only when the end is near, because each poll is a request to Ray's dashboard.
        await self._look_at_jobs(now_s)
        end = self._end(now_s)
        if end is None or now_s < end.warn_at_s:
            return
        if now_s >= end.at_s:
            self.close(end.why)
        # LOOK_S is a tolerance, because the end of an idle session may move by the time between two checks.
        elif self._warned_end is None or end.at_s > self._warned_end.at_s + LOOK_S:
            self._warned_end = end
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
        self._on_notice()
