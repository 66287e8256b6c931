"""``job.watch()``: a card in a notebook that is drawn again as the job goes on.

A loop over the job's own cursor, in a thread, so that later cells run meanwhile. What flows in are log lines and
Descriptions, what flows out are cards, at most two a second, and only where something has changed.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from raysm.client.costs.bill import bill_of, usd_so_far
from raysm.client.job.description import Description, Status
from raysm.client.job.handle import Job
from raysm.client.logs.stream import FOLLOW_S, JobStream
from raysm.errors import RaysmError
from raysm.views.card.drawing import Moment, card, words
from raysm.views.card.live_card import LiveCard
from raysm.views.card.outputs import Output, output_here
from raysm.views.card.watched import Watched

__all__ = ["Watch", "watch"]

LEAST_S = 0.5
"""Seconds between two cards, at least."""

STALE_S = 30.0
"""Seconds after which a card is drawn again although nothing has changed but the time and the cost."""


class Watch(LiveCard):
    """A card that is drawn again until its job has ended, or ``stop`` is called."""

    def __init__(self, job: Job, output: Output, *, clock: Callable[[], float] = time.time) -> None:
        """Draw the first card at once, and the others in a thread.

        Args:
            job: Whose card it is.
            output: Where it is shown.
            clock: Seconds since the epoch.
        """
        super().__init__(job.name, output)
        self._job, self._clock = job, clock
        # Who watches it sends its follow-up jobs, as who follows its log does.
        self._stream = JobStream(job.chain, send=True)
        self._watched = Watched()
        self._shown: tuple[object, ...] | None = None
        self._shown_s = 0.0
        self._trouble = ""
        self._look()
        self._begin()

    def _run(self) -> None:
        pauses = self._job.service.polling.pauses()
        while not self._stream.is_over and not self._stopping.wait(max(LEAST_S, min(next(pauses), FOLLOW_S))):
            if self._output.is_gone:
                return
            if self._look():
                # A log that has just grown is looked at often again.
                pauses = self._job.service.polling.pauses()

    def _look(self) -> bool:
        """Look once, and draw the card where it has changed; return whether lines have come."""
        came = False
        try:
            for line in self._stream.new_lines(whole=False):
                came = True
                self._watched.add(line.host, line.text)
            self._trouble = ""
        except RaysmError as error:  # a network that is away is no reason to end the card: it says so
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
        # What the look above was told: the card asks nothing by itself.
        description = chain.last_known() or Description(name=chain.name, arn="", api=chain.api, status=Status.UNKNOWN)
        with contextlib.suppress(RaysmError):
            return replace(description, instances=self._job.instances)
        return description


def _usd(job: Job, description: Description, now_s: float) -> float | None:
    """Return what the job and those before it have cost; None where that is not known, or costs nothing."""
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
        # As in a bill, of a part that is not known neither is the sum.
        return None if earlier.usd is None else earlier.usd + so_far
    return None


def watch(job: Job, output: Output | None = None) -> Watch:
    """Show a card of ``job`` below the cell, and draw it again until the job has ended; later cells run meanwhile.

    Args:
        job: The job.
        output: Where it is shown; None is the notebook.

    Raises:
        InvalidRequest: This is no notebook.
    """
    return Watch(job, output_here() if output is None else output)
