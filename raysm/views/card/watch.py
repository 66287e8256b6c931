"""``job.watch()``: a card in a notebook that is redrawn as the job goes on, at most twice a second."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from raysm.client.costs.bill import bill_of, usd_so_far
from raysm.client.job.description import Description, Status
from raysm.client.job.handle import Job
from raysm.client.logs.stream import FOLLOW_S, JobStream
from raysm.errors import RaysmError
from raysm.views.card.job_card import Moment, Watched, card, words
from raysm.views.card.live_card import LiveCard, Output, output_here

__all__ = ["Watch", "watch"]

MIN_PAUSE_S = 0.5
"""Minimum seconds between two cards."""

STALE_S = 30.0
"""Seconds after which a card is redrawn even if only the time and the cost have changed."""


class Watch(LiveCard):
    """A card that is redrawn until its job has ended, or ``stop`` is called."""

    def __init__(self, job: Job, output: Output, *, clock: Callable[[], float] = time.time) -> None:
        """Draw the first card at once, and the others in a thread.

        Args:
            job: The job.
            output: Shows the cards.
            clock: Returns seconds since the epoch.
        """
        super().__init__(job.name, output)
        self._job, self._clock = job, clock
        # Like following a log, watching a job submits its follow-up jobs.
        self._stream = JobStream(job.chain, send=True)
        self._watched = Watched()
        self._shown: tuple[object, ...] | None = None
        self._shown_s = 0.0
        self._trouble = ""
        self._look()
        self._begin()

    def _run(self) -> None:
        pauses = self._job.service.polling.pauses()
        while not self._stream.is_over and not self._stopping.wait(max(MIN_PAUSE_S, min(next(pauses), FOLLOW_S))):
            if self._output.is_gone:
                return
            if self._look():
                # New lines reset the pauses.
                pauses = self._job.service.polling.pauses()

    def _look(self) -> bool:
        """Read the log and redraw the card if it changed; return whether there were new lines."""
        came = False
        try:
            for line in self._stream.new_lines(whole=False):
                came = True
                self._watched.add(line.host, line.text)
            self._trouble = ""
        except RaysmError as error:  # the network may come back; the card says so
            self._trouble = str(error)
        self._draw()
        return came

    def _draw(self) -> None:
        job = self._description()
        seen = self._watched.seen()
        now_s = self._clock()
        state = (job.status, job.secondary, job.message, job.reason, seen, self._trouble)
        if state == self._shown and now_s - self._shown_s < STALE_S:
            return
        self._shown, self._shown_s = state, now_s
        service = self._job.service
        moment = Moment(
            job=job,
            target=service.target,
            seen=seen,
            usd=_usd(self._job, job, now_s),
            now_s=now_s,
            trouble=self._trouble,
        )
        self._output.show(card(moment), words(moment))

    def _description(self) -> Description:
        chain = self._job.chain
        # The description that the log reader fetched, so that the card sends no request of its own.
        description = chain.last_known() or Description(name=chain.name, arn="", api=chain.api, status=Status.UNKNOWN)
        with contextlib.suppress(RaysmError):
            return replace(description, instances=self._job.instances)
        return description


def _usd(job: Job, description: Description, now_s: float) -> float | None:
    """Return the cost of the job and of those it follows; None if it is unknown or nothing."""
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


def watch(job: Job, output: Output | None = None) -> Watch:
    """Show a card of ``job`` below the cell and redraw it until the job has ended; later cells run meanwhile.

    Args:
        job: The job.
        output: Shows the cards; None is the notebook.

    Raises:
        InvalidRequest: This process is not a notebook.
    """
    return Watch(job, output_here() if output is None else output)
