"""Cards that are redrawn in a notebook, in a thread, so that later cells run meanwhile.

A kind of notebook is a class in ``NOTEBOOKS``, which knows how the notebook replaces an output.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from raysm.errors import InvalidRequest

NO_NOTEBOOK = (
    "job.watch() draws a card in a notebook, which this is not: use job.logs(follow=True), "
    "or raysm logs -f JOB"
)


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
        return (
            shell.execution_count
            if is_main and getattr(shell, "kernel", None) is not None
            else None
        )

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
        self._title = title
        self._output = output
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
