"""Why a job waits, told to whoever waits for it: what the service says to one that is Pending."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from raysm.client.description import SecondaryStatus
from raysm.client.job import Job
from raysm.errors import RaysmError

__all__ = ["AFTER_S", "reasons_told"]

AFTER_S = 5.0
"""Seconds that a start may take without a word, and from one look to the next."""

WAITING = (SecondaryStatus.STARTING, SecondaryStatus.PENDING, SecondaryStatus.UNKNOWN)
"""What a job does that has no instances yet."""


@contextlib.contextmanager
def reasons_told(job: Job, say: Callable[[str], None], *, every_s: float = AFTER_S) -> Iterator[None]:
    """Tell ``say`` while the block runs why the job waits, each reason once; from a thread of its own.

    Args:
        job: One that was just sent.
        say: Takes one line.
        every_s: Seconds before the first look, and from one to the next.
    """
    # A thread, since whoever follows a log is held by it, and a job that waits has written none.
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(job, say, every_s, over), name=f"why {job.name} waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(AFTER_S)


def _tell(job: Job, say: Callable[[str], None], every_s: float, over: threading.Event) -> None:
    reason = ""
    while not over.wait(every_s):
        try:
            how = job.describe()
        except RaysmError:
            # Whoever follows the job hears of it, and decides how long that is borne.
            continue
        if how.status.is_terminal or how.secondary not in WAITING:
            return
        if how.secondary is SecondaryStatus.PENDING and how.message not in ("", reason) and not over.is_set():
            reason = how.message
            say(f"{job.name} is Pending: {reason}")
