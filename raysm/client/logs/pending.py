"""Says what a caller waits for once a job has been silent for a few seconds."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from raysm.client.job.description import SecondaryStatus
from raysm.client.job.handle import Job
from raysm.contract.events import State, parse
from raysm.errors import RaysmError

__all__ = ["AFTER_S", "JobWait", "Silence", "reasons_told"]

AFTER_S = 5.0
"""Seconds of silence after which a line says what is being waited for."""

REMARK = "raysm: "
"""How the bootstrap's own lines for people begin."""

REASONS = {
    SecondaryStatus.STARTING: "the service starts the instances",
    SecondaryStatus.PENDING: "the service starts the instances",
    SecondaryStatus.LAUNCHING: "the service starts the instances",
    SecondaryStatus.PREPARING: "the service prepares the instances",
    SecondaryStatus.DOWNLOADING: "the instances download the inputs",
    SecondaryStatus.DOWNLOADING_IMAGE: "the instances download the image",
    SecondaryStatus.UPLOADING: "the service stores the results",
    SecondaryStatus.INTERRUPTED: "spot capacity was taken back; the service looks for new capacity",
    SecondaryStatus.RESTARTING: "the service starts the instances again",
}
"""What a secondary status means for a user who waits for the job."""


class Silence:
    """Says what is being waited for after ``after_s`` of silence, each text once; a context manager with a thread."""

    def __init__(self, say: Callable[[str], None], reason: Callable[[], str], *, after_s: float = AFTER_S) -> None:
        """Begin.

        Args:
            say: Takes one line.
            reason: Returns what is being waited for, as a line; empty says nothing.
            after_s: Seconds.
        """
        self._say, self._reason, self._after_s = say, reason, after_s
        self._heard_s = time.monotonic()
        self._is_over = threading.Event()
        # A thread, because the caller is blocked by what it waits for.
        self._thread = threading.Thread(target=self._watch, name="silence", daemon=True)

    def __enter__(self) -> "Silence":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(AFTER_S)

    def heard(self) -> None:
        """Note that something was shown: the silence begins anew."""
        self._heard_s = time.monotonic()

    def _watch(self) -> None:
        said = {""}
        left_s = self._after_s
        while not self._is_over.wait(left_s):
            left_s = self._heard_s + self._after_s - time.monotonic()
            if left_s > 0:
                continue
            left_s = self._after_s
            text = self._reason()
            if text not in said and not self._is_over.is_set():
                said.add(text)
                try:
                    self._say(text)
                except OSError:  # stdout was closed, which the caller notices by itself
                    return


class JobWait:
    """What is being waited for of one job: from its status, and from the lines of its log."""

    def __init__(self, job: Job) -> None:
        """Begin with a job of which no line has been seen."""
        self._job = job
        self._state: State | None = None
        self._installs = self._has_output = False

    def hear(self, text: str) -> None:
        """Take a line of the job's log."""
        match parse(text):
            case State() as state:
                self._state = state
            case None if text.startswith(REMARK):
                self._installs = text.startswith((f"{REMARK}installing ", f"{REMARK}looking for packages"))
            case _:
                self._has_output = True

    def reason(self) -> str:
        """Return what is being waited for, as a line; empty where the job's own output says it."""
        try:
            how = self._job.describe()
        except RaysmError:
            # The caller follows the job, hears of it too, and decides how long to bear it.
            return ""
        if how.status.is_terminal:
            return ""
        if how.secondary is SecondaryStatus.PENDING and how.message:
            return f"{self._job.name} is Pending: {how.message}"
        if how.secondary in REASONS:
            return f"waiting: {REASONS[how.secondary]}"
        if self._has_output or how.secondary not in (SecondaryStatus.TRAINING, SecondaryStatus.NONE):
            return ""
        return f"waiting: {self._phase()}"

    def _phase(self) -> str:
        match self._state:
            case State(name="joined", count=int(count), total=int(total)) if count == total:
                return f"all {total} instances have joined, and their Ray nodes start"
            case State(name="joined", count=int(count), total=int(total)):
                return f"{count} of {total} instances have joined, and the others still start"
            case None if self._installs:
                return "pip installs packages that the image lacks"
            case None:
                return "the instances start Python and Ray"
        return "the workload has started (its imports may take a while), and has printed nothing yet"


@contextlib.contextmanager
def reasons_told(job: Job, say: Callable[[str], None], *, every_s: float = AFTER_S) -> Iterator[Callable[[str], None]]:
    """Tell ``say`` while the block runs what is being waited for, once the job has been silent; each text once.

    Args:
        job: One that was just sent.
        say: Takes one line; it is called from a thread.
        every_s: Seconds of silence before it is called, and between two looks at the job.

    Yields:
        Takes each line of the job's log, so that it counts.
    """
    waits = JobWait(job)
    with Silence(say, waits.reason, after_s=every_s) as silence:

        def hear(text: str) -> None:
            waits.hear(text)
            silence.heard()

        yield hear
