"""One session on the head: its calls, its namespace, its notices to clients, and its end."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from raysm.core.protocol.events import State
from raysm.core.request.durations import brief_duration
from raysm.errors import InvalidRequest
from raysm.features.session.cluster.blobs import Blobs
from raysm.features.session.cluster.calls import Calls, Executor
from raysm.features.session.cluster.cells import Cells
from raysm.features.session.cluster.lifetime import Activity, End, Lifetime
from raysm.features.session.cluster.remote_calls import RemoteCalls
from raysm.features.session.protocol import CLOSING, WARNING, SessionState, Versions
from raysm.instance.work.report import EmitEvent

CHECK_S = 1.0
JOBS_S = 5.0
"""How often to ask Ray for its jobs while one runs."""

CALLS_GRACE_S = 2.0
"""How long interrupted calls may take at the end, so that ``with Session`` closes within 5 s."""


class SessionHost:
    def __init__(
        self,
        job: str,
        hosts: tuple[str, ...],
        folder: Path,
        cells: Cells,
        executors: Mapping[str, Executor],
        remote: RemoteCalls,
        lifetime: Lifetime,
        activity_sources: Sequence[Callable[[], Awaitable[Activity]]],
        emit: EmitEvent,
        blobs: Blobs,
    ) -> None:
        self._job = job
        self._hosts = hosts
        self._folder = folder
        self._activity_sources = activity_sources
        self._emit = emit
        self.cells = cells
        self.remote = remote
        self.blobs = blobs
        self.lifetime = lifetime
        self.calls = Calls(executors, blobs, lifetime.note_activity, emit)
        self.loop = asyncio.get_running_loop()
        self.notices: list[str] = []
        self._closed = asyncio.Event()
        # The end that the last warning announced. A later end, after keep(), gets another warning.
        self._warned_end: End | None = None
        self._running_jobs = 0
        self._activity_checked_s = 0.0
        self._on_notice: Callable[[], None] = lambda: None

    def state(self) -> SessionState:
        now_s = time.monotonic()
        end = self._end(now_s)
        cpus, gpus = self.remote.count_resources()
        return SessionState(
            job=self._job,
            versions=Versions.here(),
            hosts=self._hosts,
            cpus=cpus,
            gpus=gpus,
            busy=self.calls.busy + self._running_jobs,
            clients=self.lifetime.count_clients(now_s),
            uptime_s=self.lifetime.uptime_s(now_s),
            ends_in_s=None if end is None else max(0.0, end.at_s - now_s),
            ends_why="" if end is None else end.why,
            closing=self.calls.closing,
            usd=self.lifetime.usd(now_s),
            usd_per_hour=self.lifetime.rules.usd_per_hour,
            budget_usd=self.lifetime.rules.budget_usd,
            folder=str(self._folder),
        )

    def path(self, text: str) -> Path:
        if not text:
            raise InvalidRequest("the path of the session's file is empty")
        return self._folder / text

    def close(self, why: str) -> None:
        """Begin the end: accept no more calls, and let ``live`` interrupt the running ones."""
        # Keep the first reason, because later ones are usually consequences.
        self.calls.closing = self.calls.closing or why
        self._closed.set()

    async def live(self, on_notice: Callable[[], None]) -> str:
        """Wait for the end of the session, and end all calls; return the reason of the end.

        ``on_notice`` is called after each new notice.
        """
        self._on_notice = on_notice
        while not self._closed.is_set():
            await self._check_end()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), CHECK_S)
        why = self.calls.closing
        self._notify(CLOSING, f"the session ends: {why}", why)
        await self.calls.close(why, CALLS_GRACE_S)
        return why

    async def _check_end(self) -> None:
        now_s = time.monotonic()
        if self.calls.busy:
            self.lifetime.note_activity(now_s)
        # The idle time begins at the end of the last job, so poll while one runs.
        if self._running_jobs and now_s - self._activity_checked_s >= JOBS_S:
            await self._fetch_activity(now_s)
        end = self._end(now_s)
        if end is None or now_s < end.warn_at_s:
            return
        # Otherwise jobs are polled only when the end is near, because each poll is a request to
        # Ray's dashboard.
        await self._fetch_activity(now_s)
        end = self._end(now_s)
        if end is None or now_s < end.warn_at_s:
            return
        if now_s >= end.at_s:
            self.close(end.why)
        # CHECK_S is a tolerance, because the end of an idle session may move by the time between
        # two checks.
        elif self._warned_end is None or end.at_s > self._warned_end.at_s + CHECK_S:
            self._warned_end = end
            left = brief_duration(end.at_s - now_s)
            keep = "; keep(minutes=…) puts that off" if end.can_be_kept else ""
            self._notify(WARNING, f"the session ends in {left} ({end.why}){keep}", end.why)

    def _end(self, now_s: float) -> End | None:
        return self.lifetime.find_end(now_s, is_busy=bool(self.calls.busy or self._running_jobs))

    async def _fetch_activity(self, now_s: float) -> None:
        self._activity_checked_s = now_s
        seen = await asyncio.gather(*(fetch() for fetch in self._activity_sources))
        self._running_jobs = sum(each.running for each in seen)
        for each in seen:
            if each.idle_s is not None:
                self.lifetime.note_activity(now_s - each.idle_s)

    def _notify(self, state: str, text: str, why: str) -> None:
        self.notices.append(text)
        self._emit(State(name=state, host=self._hosts[0], detail=text if state == WARNING else why))
        self._on_notice()
