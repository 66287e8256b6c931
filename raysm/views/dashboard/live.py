"""The dashboard of a job that runs: Ray's own page from the head, with charts added; once the job ends, what it left.

What flows in are the requests that were let in, the job's log and Ray's list of its nodes, what flows out are answers.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raysm.contract.dashboard_record import history_key, samples_of_lines
from raysm.contract.events import Metric
from raysm.contract.node_usage import NODES, head_of, samples_of
from raysm.errors import RaysmError
from raysm.views.dashboard.assets import Assets
from raysm.views.dashboard.grafana import ASKED_FIRST, ChartsPart
from raysm.views.dashboard.parts import PageRequest, Part, answer_of
from raysm.views.dashboard.upstream import Upstream, Way
from raysm.views.dashboard.waiting_page import WaitingPage
from raysm.views.dashboard.watch import Watch

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["LiveSite"]

_log = logging.getLogger("raysm")

SAMPLE_S = 5.0
"""As often as Ray's nodes tell how they are."""
LOOK_S = 3.0
"""Between two looks at the job's log."""
HISTORY_LOOKS = 6
"""So often the head is asked for what was before the first look: one that is just starting has nothing yet."""


class LiveSite:
    """What the proxy of a job that runs shows."""

    def __init__(
        self,
        name: str,
        watch: Watch,
        *,
        way: Way,
        token: str,
        cache: Path,
        ended: Callable[[], Sequence[Part]],
        look_s: float = LOOK_S,
    ) -> None:
        """Ask nothing yet.

        Args:
            name: Of the job.
            watch: What it says.
            way: Leads to its dashboard.
            token: Its own.
            cache: Where files of the page are kept.
            ended: Returns what is shown once the job has ended; may block.
            look_s: Seconds between two looks at the job.
        """
        self._name, self._watch, self._ended = name, watch, ended
        self._is_ended, self._look_s = False, look_s
        self._upstream = Upstream(way, token, ASKED_FIRST)
        charts = ChartsPart(name, watch.timeline)
        self._waiting = WaitingPage(name, self._upstream.reach)
        self._parts: Sequence[Part] = (charts, self._waiting, Assets(self._upstream, cache), self._upstream)
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Follow the job, and sample its nodes."""
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._sample())]

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer with the first part that has an answer."""
        answer = await answer_of(self._parts, page_request)
        # The head may have gone while it was asked: what the job left has the answer by now.
        if (
            self._is_ended
            and page_request.only_reads
            and answer is not None
            and answer.status == 502
            and not answer.prepared
        ):
            return await answer_of(self._parts, page_request)
        return answer

    async def end(self) -> None:
        """Close the way to the head."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._waiting.end()
        await self._upstream.close()

    async def _follow(self) -> None:
        while not self._is_ended:
            await asyncio.sleep(self._look_s)
            try:
                await self._look()
            except RaysmError:
                # A service that is away says later what it would have said now; what a job leaves may come late.
                continue
            except Exception:
                # Whoever looks at the page must not lose it by that; and who mends it must hear of it.
                _log.warning("the dashboard of %s cannot follow its job just now", self._name, exc_info=True)

    async def _look(self) -> None:
        """Look once at the job; once it has ended, show what it left."""
        if not self._watch.is_over:
            self._watch.take(await asyncio.to_thread(self._watch.read))
        if self._watch.is_over:
            # A job that left nothing keeps the page that it has: that one says that the head cannot be reached.
            self._parts = await asyncio.to_thread(self._ended)
            self._is_ended = True
            # Whoever still waits for the head gets what is left at once.
            self._upstream.leave()

    async def _sample(self) -> None:
        history = HISTORY_LOOKS
        while not self._watch.is_over:
            # Of an answer in another form there is nothing to draw; the rest of the page goes on.
            with contextlib.suppress(OSError, RaysmError, ValueError, KeyError, TypeError):
                answer = json.loads(await self._upstream.read(NODES))
                self._keep(samples_of(answer, time.time()))
                # Once: from then on it is seen here. The agent that reads it out comes some seconds after the page.
                if history:
                    history -= 1
                    self._keep(samples_of_lines((await self._upstream.read(history_key(head_of(answer)))).decode()))
                    history = 0
            await asyncio.sleep(SAMPLE_S)

    def _keep(self, samples: Iterable[Metric]) -> None:
        for sample in samples:
            self._watch.timeline.add(sample)
