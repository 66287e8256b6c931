"""Where a live card is shown: the notebook that this process belongs to, by its own way to replace what it showed.

What flows in are cards, as HTML and in words; what flows out is one place on somebody's page that changes. To add a
notebook is to write its class and add it to ``NOTEBOOKS``.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["NOTEBOOKS", "Output", "output_here"]

NO_NOTEBOOK = (
    "job.watch() draws a card in a notebook, and this is not a notebook: in a terminal use job.logs(follow=True), "
    "or raysm logs -f JOB"
)


class Output:
    """One place where cards are shown, the latest in the place of the one before."""

    @classmethod
    def is_here(cls) -> bool:
        """Whether this process has such a place."""
        return False

    @property
    def is_gone(self) -> bool:
        """Whether nobody sees it any more; called in the thread that ``thread`` has made."""
        return False

    def show(self, html: str, text: str) -> None:
        """Show a card for the first time, or in place of the one before; ``text`` is for where no HTML is shown."""
        raise NotImplementedError

    def thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Return a thread, not started, that may call ``show``."""
        # A daemon: a kernel that is shut down does not wait for a job.
        return threading.Thread(target=work, name=name, daemon=True)


class JupyterOutput(Output):
    """A cell of Jupyter, VS Code or Colab, by ``display_id``: it stays in its cell, wherever that stands."""

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
    """A cell of marimo, which knows no ``display_id`` outside of the cell that runs, and takes output by its own."""

    @classmethod
    def is_here(cls) -> bool:
        """Whether this is marimo's kernel."""
        # Not imported to find out: who is in its notebook has it.
        marimo = sys.modules.get("marimo")
        return marimo is not None and marimo.running_in_notebook()

    @property
    def is_gone(self) -> bool:
        """Whether the cell was run again, or deleted."""
        import marimo

        return bool(marimo.current_thread().should_exit)

    def show(self, html: str, text: str) -> None:
        """See ``Output``."""
        import marimo

        # Html, not Markdown: of that a line that looks like it would be made bold.
        marimo.output.replace(marimo.Html(html))

    def thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Return one of marimo's: it takes what others write for nobody's."""
        import marimo

        thread: threading.Thread = marimo.Thread(target=work, name=name, daemon=True)
        return thread


NOTEBOOKS: Sequence[type[Output]] = (MarimoOutput, JupyterOutput)
"""marimo first: it makes IPython believe that it were none, but somebody may have started a shell in its kernel."""


def output_here(otherwise: str = NO_NOTEBOOK) -> Output:
    """Return the place of this process.

    Args:
        otherwise: What is said where there is none.

    Raises:
        InvalidRequest: This is no notebook.
    """
    for kind in NOTEBOOKS:
        if kind.is_here():
            return kind()
    raise InvalidRequest(otherwise)
