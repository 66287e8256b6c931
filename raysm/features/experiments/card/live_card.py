"""Cards that are redrawn in a notebook, in a thread, so that later cells run meanwhile.

A kind of notebook is a class in ``NOTEBOOKS``, which knows how the notebook replaces an output.
"""

import contextlib
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from raysm.core.client.costs.bill import bill_of, usd_so_far
from raysm.core.client.job.description import Description, Status
from raysm.core.client.job.handle import Job
from raysm.core.client.logs.stream import FOLLOW_S, JobStream
from raysm.core.protocol.names import WORKLOAD_TAG
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.experiments.card.job_card import JobCard

NO_NOTEBOOK = (
    "job.watch() draws a card in a notebook, which this is not: use job.logs(follow=True), or raysm logs -f JOB"
)

MIN_PAUSE_S = 0.5
STALE_S = 30.0
"""Seconds after which a card is redrawn even if only the time and the cost have changed."""


class Output:
    @classmethod
    def is_here(cls) -> bool:
        """Whether this process runs in this kind of notebook."""
        return False

    @property
    def is_gone(self) -> bool:
        """Whether the user removed the output; called in the thread that ``thread`` returned."""
        return False

    @property
    def cell(self) -> object:
        """Identifies the run of the cell that this thread executes; None if it executes none."""
        return None

    def show(self, html: str, text: str) -> None:
        """Replace the shown card; ``text`` is for notebooks without HTML."""
        raise NotImplementedError

    def thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Return a thread, not yet started, that may call ``show``."""
        # A daemon, so that the kernel can shut down before the job ends.
        return threading.Thread(target=work, name=name, daemon=True)


class JupyterOutput(Output):
    def __init__(self) -> None:
        self._handle: Any = None

    @classmethod
    def is_here(cls) -> bool:
        return _ipython() is not None

    @property
    def cell(self) -> object:
        """The number of the cell; None in a terminal."""
        shell = _ipython()
        is_main = threading.current_thread() is threading.main_thread()
        return shell.execution_count if is_main and getattr(shell, "kernel", None) is not None else None

    def show(self, html: str, text: str) -> None:
        from IPython import display

        content = {"text/html": html, "text/plain": text}
        if self._handle is None:
            show: Any = display.display
            self._handle = show(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _ipython() -> Any:
    # In its kernel or shell, IPython is already imported.
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


class MarimoOutput(Output):
    @classmethod
    def is_here(cls) -> bool:
        # In a marimo notebook, marimo is already imported.
        marimo = sys.modules.get("marimo")
        return marimo is not None and marimo.running_in_notebook()

    @property
    def cell(self) -> object:
        """The same for all cells: marimo shows one output of each."""
        return "marimo"

    @property
    def is_gone(self) -> bool:
        import marimo

        return bool(marimo.current_thread().should_exit)

    def show(self, html: str, text: str) -> None:
        import marimo

        # As Html, because Markdown could change the card's text.
        marimo.output.replace(marimo.Html(html))

    def thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Return a thread of marimo, which drops the output of other threads."""
        import marimo

        thread: threading.Thread = marimo.Thread(target=work, name=name, daemon=True)
        return thread


NOTEBOOKS: Sequence[type[Output]] = (MarimoOutput, JupyterOutput)
"""marimo comes first, because its kernel may also have an IPython shell."""


def output_here(otherwise: str = NO_NOTEBOOK) -> Output:
    for kind in NOTEBOOKS:
        if kind.is_here():
            return kind()
    raise InvalidRequest(otherwise)


class LiveCard(ABC):
    def __init__(self, title: str, output: Output) -> None:
        self._title, self._output = title, output
        self._stopping = threading.Event()

    def _begin(self) -> None:
        self._thread = self._output.thread(self._run, f"raysm card of {self._title}")
        self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Redraw until the end, or until ``_stopping`` is set."""

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def is_live(self) -> bool:
        return self._thread.is_alive() and not self._stopping.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __repr__(self) -> str:
        return f"<card of {self._title}, {'live' if self.is_live else 'ended'}>"

    def _ipython_display_(self) -> None:  # noqa: B027
        """Show nothing more: the card itself is below the cell already."""


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
        while not self._stream.is_over and not self._stopping.wait(max(MIN_PAUSE_S, min(next(pauses), FOLLOW_S))):
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
            self._output.show(self._card.html(job, usd, now_s, trouble), self._card.text(job, usd, now_s))
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
        description = chain.last_known() or Description(name=chain.name, arn="", api=chain.api, status=Status.UNKNOWN)
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

    There is no second card while one is live, or if a cell waits again. An interrupted cell keeps the last card.
    """
    output = output or next((kind() for kind in NOTEBOOKS if kind.is_here()), Output())
    cell = output.cell
    earlier_cell, earlier = _latest.get(job.chain.first, (None, None))
    # A session has a card of its own.
    if (
        cell is None
        or (earlier is not None and earlier.is_live)
        or job.done()
        or job.tags.get(WORKLOAD_TAG) == "session"
    ):
        yield
        return
    watching = watch(job, earlier._output if earlier is not None and earlier_cell == cell else output)
    try:
        yield
        watching.finish()
    finally:
        watching.abandon()
