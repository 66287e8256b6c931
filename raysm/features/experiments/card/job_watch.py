"""The card of a job that is redrawn in a notebook until the job has ended."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from raysm.core.client.costs.bill import bill_of, usd_so_far
from raysm.core.client.job.description import Description, Status
from raysm.core.client.job.handle import Job
from raysm.core.client.logs.stream import FOLLOW_S, JobStream
from raysm.core.client.views.live_card import NOTEBOOKS, LiveCard, Output, output_here
from raysm.core.protocol.names import WORKLOAD_TAG
from raysm.core.request.workload import takes_calls
from raysm.errors import RaysmError
from raysm.features.experiments.card.job_card import JobCard

MIN_PAUSE_S = 0.5
STALE_S = 30.0
"""Seconds after which a card is redrawn even if only the time and the cost have changed."""


class JobWatch(LiveCard):
    def __init__(self, job: Job, output: Output) -> None:
        super().__init__(job.name, output)
        self._job = job
        # Like following a log, watching a job submits its follow-up jobs.
        self._stream = JobStream(job.chain, send=True)
        self._card = JobCard(job.service.target)
        self._shown: tuple[object, ...] | None = None
        self._shown_s = 0.0
        self._look()
        self._begin()

    def _run(self) -> None:
        pauses = self._job.service.polling.pauses()
        while not self._stream.is_over and not self._stopping.wait(
            max(MIN_PAUSE_S, min(next(pauses), FOLLOW_S))
        ):
            if self._output.is_gone:
                return
            if self._look():
                # New lines reset the pauses.
                pauses = self._job.service.polling.pauses()

    def _look(self) -> bool:
        came, trouble = False, ""
        try:
            for line in self._stream.new_lines(whole=False):
                came = True
                self._card.add(line.host, line.text, self._stream.found(line))
        except RaysmError as error:  # the network may come back; the card says so
            trouble = str(error)
        job, now_s = self._description(), time.time()
        state = (job.status, job.secondary, job.message, job.reason, trouble)
        if came or state != self._shown or now_s - self._shown_s >= STALE_S:
            self._shown, self._shown_s = state, now_s
            usd = _usd(self._job, job, now_s)
            self._output.show(
                self._card.html(job, usd, now_s, trouble), self._card.text(job, usd, now_s)
            )
        return came

    def finish(self) -> None:
        self.stop()
        self._look()

    def abandon(self) -> None:
        """Stop without waiting for the thread; the last card remains."""
        self._stopping.set()

    def _description(self) -> Description:
        chain = self._job.chain
        # The description that the log reader fetched, so that the card sends no request of its own.
        description = chain.last_known() or Description(
            name=chain.name, arn="", api=chain.api, status=Status.UNKNOWN
        )
        with contextlib.suppress(RaysmError):
            return replace(description, instances=self._job.instances)
        return description


def _usd(job: Job, description: Description, now_s: float) -> float | None:
    if not job.service.target.is_billed:
        return None
    with contextlib.suppress(RaysmError):
        if description.status.is_terminal:
            bill = job.cost()
            return None if bill is None else bill.usd
        so_far = usd_so_far(description, job.service.region, now_s)
        earlier = bill_of(job.chain.earlier(), job.service.region)
        if earlier is None or so_far is None:
            return so_far
        # If a part is unknown, so is the sum.
        return None if earlier.usd is None else earlier.usd + so_far
    return None


_latest: dict[str, tuple[object, JobWatch]] = {}
"""By the name of a chain's first job: its latest card, and the cell that showed it."""


def watch(job: Job, output: Output | None = None) -> JobWatch:
    """Show a card of ``job`` below the cell and redraw it until the job has ended; later cells run meanwhile.

    Args:
        job: The job.
        output: Shows the cards; None is the notebook.

    Raises:
        InvalidRequest: This process is not a notebook.
    """
    output = output_here() if output is None else output
    watching = JobWatch(job, output)
    _latest[job.chain.first] = output.cell, watching
    return watching


@contextlib.contextmanager
def shown_meanwhile(job: Job, output: Output | None = None) -> Iterator[None]:
    """Show a live card of ``job`` while a notebook's cell waits for the job in the block; elsewhere show nothing.

    There is no second card while one is live, or if a cell waits again. An interrupted cell keeps
    the last card.
    """
    output = output or next((kind() for kind in NOTEBOOKS if kind.is_here()), Output())
    cell = output.cell
    earlier_cell, earlier = _latest.get(job.chain.first, (None, None))
    # What takes calls has a card of its own.
    if (
        cell is None
        or (earlier is not None and earlier.is_live)
        or job.done()
        or takes_calls(job.tags.get(WORKLOAD_TAG))
    ):
        yield
        return
    watching = watch(
        job, earlier._output if earlier is not None and earlier_cell == cell else output
    )
    try:
        yield
        watching.finish()
    finally:
        watching.abandon()
