"""Say what a caller waits for once a job has been silent for a few seconds."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from raysm.core.client.job.description import Description, SecondaryStatus
from raysm.core.protocol.events import State, parse
from raysm.errors import RaysmError

AFTER_S = 5.0
REMARK = "raysm: "
"""Prefix of the log lines that the bootstrap writes for users."""

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


class Describable(Protocol):
    @property
    def name(self) -> str: ...
    def describe(self) -> Description: ...


class Silence:
    """Context manager that reports why a job waits after ``after_s`` seconds of silence.

    Each reason is reported once.
    """

    def __init__(
        self, say: Callable[[str], None], reason: Callable[[], str], *, after_s: float = AFTER_S
    ) -> None:
        self._say = say
        self._reason = reason
        self._after_s = after_s
        self._shown_s = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="silence", daemon=True)

    def __enter__(self) -> "Silence":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(AFTER_S)

    def reset(self) -> None:
        self._shown_s = time.monotonic()

    def _watch(self) -> None:
        said = {""}
        left_s = self._after_s
        while not self._is_over.wait(left_s):
            left_s = self._shown_s + self._after_s - time.monotonic()
            if left_s > 0:
                continue
            left_s = self._after_s
            text = self._reason()
            if text not in said and not self._is_over.is_set():
                said.add(text)
                try:
                    self._say(text)
                except OSError:  # stdout was closed, which the caller notices too
                    return


class JobWait:
    """Derives what a job waits for from its status and the lines of its log."""

    def __init__(self, job: Describable) -> None:
        self._job = job
        self._state: State | None = None
        self._installs = self._has_output = False

    def on_line(self, text: str) -> None:
        match parse(text):
            case State() as state:
                self._state = state
            case None if text.startswith(REMARK):
                self._installs = text.startswith(
                    (f"{REMARK}installing ", f"{REMARK}looking for packages")
                )
                # Once the workload has started, such a line is its own, for example with the size
                # of its matrix.
                self._has_output |= self._state is not None and self._state.name != "joined"
            case _:
                self._has_output = True

    def reason(self) -> str:
        try:
            description = self._job.describe()
        except RaysmError:  # the caller, who follows the job, handles it
            return ""
        if description.status.is_terminal:
            return ""
        if description.secondary is SecondaryStatus.PENDING and description.message:
            return f"{self._job.name} is Pending: {description.message}"
        if description.secondary in REASONS:
            return f"waiting: {REASONS[description.secondary]}"
        if self._has_output or description.secondary not in (
            SecondaryStatus.TRAINING,
            SecondaryStatus.NONE,
        ):
            return ""
        match self._state:
            case State(name="joined", count=int(count), total=int(total)) if count == total:
                return f"waiting: all {total} instances have joined, and their Ray nodes start"
            case State(name="joined", count=int(count), total=int(total)):
                return (
                    f"waiting: {count} of {total} instances have joined, and the others still start"
                )
            case None if self._installs:
                return "waiting: pip installs packages that the image lacks"
            case None:
                return "waiting: the instances start Python and Ray"
        return (
            "waiting: the workload has started (its imports may take a while), "
            "and has printed nothing yet"
        )


@contextlib.contextmanager
def reasons_told(
    job: Describable, say: Callable[[str], None], *, every_s: float = AFTER_S
) -> Iterator[Callable[[str], None]]:
    """Say what a job waits for after every ``every_s`` seconds of silence during the block."""
    waits = JobWait(job)
    with Silence(say, waits.reason, after_s=every_s) as silence:

        def on_line(text: str) -> None:
            waits.on_line(text)
            silence.reset()

        yield on_line
