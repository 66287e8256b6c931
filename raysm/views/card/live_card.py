"""Cards that are redrawn in a notebook, in a thread, so that later cells run meanwhile.

A kind of notebook is a class in ``NOTEBOOKS``, which knows how the notebook replaces an output.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["NOTEBOOKS", "LiveCard", "Output", "output_here"]

NO_NOTEBOOK = (
    "job.watch() draws a card in a notebook, and this is not a notebook: in a terminal use job.logs(follow=True), "
    "or raysm logs -f JOB"
)


class Output:
    """An output of a notebook that shows the latest card."""

    @classmethod
    def is_here(cls) -> bool:
        """Whether this process runs in this kind of notebook."""
        return False

    @property
    def is_gone(self) -> bool:
        """Whether the user removed the output; called in the thread that ``thread`` returned."""
        return False

    def show(self, html: str, text: str) -> None:
        """Replace the shown card; ``text`` is for notebooks without HTML."""
        raise NotImplementedError

    def thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Return a thread, not yet started, that may call ``show``."""
        # A daemon, so that the kernel can shut down before the job ends.
        return threading.Thread(target=work, name=name, daemon=True)


class JupyterOutput(Output):
    """A cell of Jupyter, VS Code or Colab, updated by ``display_id``."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._handle: Any = None

    @classmethod
    def is_here(cls) -> bool:
        """Whether this is IPython's kernel or shell."""
        try:
            from IPython.core.getipython import get_ipython
        except ImportError:
            return False
        return get_ipython() is not None

    def show(self, html: str, text: str) -> None:
        """See ``Output``."""
        from IPython import display

        content = {"text/html": html, "text/plain": text}
        if self._handle is None:
            show: Any = display.display
            self._handle = show(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class MarimoOutput(Output):
    """A cell of marimo, which supports ``display_id`` only while the cell runs."""

    @classmethod
    def is_here(cls) -> bool:
        """Whether this is marimo's kernel."""
        # In a marimo notebook, marimo is already imported.
        marimo = sys.modules.get("marimo")
        return marimo is not None and marimo.running_in_notebook()

    @property
    def is_gone(self) -> bool:
        """Whether the cell was run again or deleted."""
        import marimo

        return bool(marimo.current_thread().should_exit)

    def show(self, html: str, text: str) -> None:
        """See ``Output``."""
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
    """Return the output of the notebook of this process.

    Args:
        otherwise: The error message if this process is not a notebook.

    Raises:
        InvalidRequest: This process is not a notebook.
    """
    for kind in NOTEBOOKS:
        if kind.is_here():
            return kind()
    raise InvalidRequest(otherwise)


class LiveCard(ABC):
    """A card that is redrawn until its subject has ended, or ``stop`` is called."""

    def __init__(self, title: str, output: Output) -> None:
        """Draw nothing before ``_begin``.

        Args:
            title: The subject, for the name of the thread.
            output: Shows the cards.
        """
        self._title, self._output = title, output
        self._stopping = threading.Event()

    def _begin(self) -> None:
        """Start redrawing in a thread. The caller draws the first card before, to raise its errors itself."""
        self._thread = self._output.thread(self._run, f"raysm card of {self._title}")
        self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Redraw until the end, or until ``_stopping`` is set."""

    def stop(self) -> None:
        """Stop redrawing the card; the job or session keeps running."""
        self._stopping.set()
        self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the last card is drawn; return whether that was within ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __repr__(self) -> str:
        return f"<card of {self._title}, {'ended' if self.wait(0) else 'live'}>"
