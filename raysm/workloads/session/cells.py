"""Cells of a session: source that runs in one namespace, one cell at a time.

The head's namespace lives in the main thread of the driver, because a signal interrupts only that one, also within a
sleep or a wait for Ray. Other instances have their namespace in a process of Ray's.
"""

import ast
import asyncio
import base64
import contextlib
import json
import linecache
import pickle
import queue
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raysm.contract.session import CELL, PULL, PUSH, CallRequest, Outcome
from raysm.workloads.failure import pickled_value
from raysm.workloads.session.calls import Call
from raysm.workloads.session.outcomes import interrupted, outcome_of_error
from raysm.workloads.session.output import Output

__all__ = ["Cells", "Namespace", "shown"]

REPRESENTATIONS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
}
"""The methods by which IPython shows a value, as https://ipython.readthedocs.io/en/stable/config/integrating.html has
them."""


class Namespace:
    """Names and what they stand for, and what is run among them.

    Attributes:
        names: What cells see as their globals.
    """

    def __init__(self) -> None:
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = __builtins__
        self.names = self._module.__dict__
        self._number = 0
        self._kinds: Mapping[str, Callable[[CallRequest, bytes], Outcome]] = {
            CELL: self._cell,
            PUSH: self._push,
            PULL: self._pull,
        }

    @contextlib.contextmanager
    def as_main(self) -> Iterator[None]:
        """Have it stand for the program while the body runs."""
        main, argv = sys.modules["__main__"], sys.argv[:]
        # As the module itself: classes that cells define are pickled by value, as those of a notebook are.
        sys.modules["__main__"] = self._module
        try:
            yield
        finally:
            sys.modules["__main__"], sys.argv[:] = main, argv

    def do(self, request: CallRequest, body: bytes) -> Outcome:
        """Run a cell, or put values in, or bring them out, as ``request`` says.

        Args:
            request: What is asked for.
            body: The source; the pickled values; or the names, as JSON.

        Raises:
            BaseException: Whatever the cell raises.
        """
        return self._kinds[request.kind](request, body)

    def _cell(self, request: CallRequest, body: bytes) -> Outcome:
        self._number += 1
        # Always UTF-8: it was a notebook's cell or a text of Python, not a file with a coding line.
        source = body.decode()
        filename = request.filename or f"<cell {self._number}>"
        # A traceback shows its lines from there.
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        if request.filename:
            sys.argv[:] = [filename, *request.args]
        value = run_source(source, filename, self.names)
        if value is None:
            return Outcome()
        # As in every prompt of Python's: what was shown last can be used.
        self.names["_"] = value
        return Outcome(shown=shown(value))

    def _push(self, request: CallRequest, body: bytes) -> Outcome:
        # Pickled as a call is, so that the user's own modules travel along with the values.
        _, _, values = pickle.loads(body)
        self.names.update(values)
        return Outcome()

    def _pull(self, request: CallRequest, body: bytes) -> Outcome:
        names: list[str] = json.loads(body)
        # All of them at once: who asks for three names is not told of one after the other.
        missing = [name for name in names if name not in self.names]
        if missing:
            where = f"{request.host}'s namespace in the session" if request.host else "the session"
            raise NameError(f"{where} has no {', '.join(map(repr, missing))}")
        return Outcome(pickled=pickled_value({name: self.names[name] for name in names}, ", ".join(names)))


def run_source(source: str, filename: str, namespace: dict[str, Any]) -> Any:
    """Run ``source``; return the value of its last line where that is an expression, else None."""
    tree = ast.parse(source, filename)
    last: list[ast.expr] = []
    match tree.body[-1:]:
        case [ast.Expr(value=expression)]:
            tree.body.pop()
            last.append(expression)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    _run(compile(tree, filename, "exec", flags, dont_inherit=True), namespace)
    codes = [compile(ast.Expression(node), filename, "eval", flags, dont_inherit=True) for node in last]
    return _run(codes[0], namespace) if codes else None


def _run(code: types.CodeType, namespace: dict[str, Any]) -> Any:
    value = eval(code, namespace)
    # A cell with an await in its outermost lines, as notebooks have them.
    return asyncio.run(value) if code.co_flags & 0x80 and asyncio.iscoroutine(value) else value


def shown(value: object) -> dict[str, str]:
    """Return a value for people, by MIME type; text always."""
    texts = {"text/plain": repr(value)}
    for mime, name in REPRESENTATIONS.items():
        method = getattr(type(value), name, None)
        if method is None:
            continue
        try:
            content = method(value)
        except Exception:  # the value's own code; its text stands already
            continue
        if isinstance(content, bytes):
            texts[mime] = base64.b64encode(content).decode()
        elif isinstance(content, str):
            texts[mime] = content
    return texts


SIGNAL_S = 0.1
"""How often the main thread is signalled until it has seen that its cell is to end."""


class Cells:
    """The head's namespace, and what is run in it."""

    def __init__(self, host: str) -> None:
        """Begin with an empty namespace.

        Args:
            host: This instance.
        """
        self._host = host
        self._namespace = Namespace()
        self._queue: queue.SimpleQueue[tuple[Call, Callable[[Outcome], None]] | None] = queue.SimpleQueue()
        # Made in the main thread, in which ``live`` runs.
        self._main = threading.get_ident()
        self._current: Call | None = None
        self._wanted: Call | None = None

    @property
    def namespace(self) -> dict[str, Any]:
        """What cells see as their globals."""
        return self._namespace.names

    # In the server's loop

    async def run(self, call: Call) -> tuple[bytes, bool]:
        """Have one run in its turn; see ``Executor``."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Outcome] = loop.create_future()

        def tell(outcome: Outcome) -> None:
            # The future may have been cancelled meanwhile: its call was given up at the session's end.
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(outcome))

        self._queue.put((call, tell))
        outcome = await ended
        return outcome.encode(), outcome.error is not None

    def interrupt(self, call: Call) -> None:
        """Have the call end, if it is the one that runs: others see for themselves that they are not to begin."""
        # Only then: of several that are interrupted together, one that waits is not to stand before the one that runs.
        if self._current is call:
            # Before the signal, whose handler asks for it.
            self._wanted = call
            self._signal(call)

    def _signal(self, call: Call) -> None:
        if self._wanted is call and self._current is call:
            # To this thread, not the process: a sleep or a read of the main thread then ends at once.
            signal.pthread_kill(self._main, signal.SIGINT)
            # Until it is seen: one that comes between the thread's last look and its system call wakes nobody, and
            # this thread often runs just then, because a sleep gives up the interpreter's lock before it begins.
            asyncio.get_running_loop().call_later(SIGNAL_S, self._signal, call)

    # In the main thread

    def live(self) -> None:
        """Run what comes, until ``end``; in the main thread."""
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            with self._namespace.as_main():
                while (entry := self._queue.get()) is not None:
                    call, tell = entry
                    tell(self._execute(call))
        finally:
            signal.signal(signal.SIGINT, before)

    def end(self) -> None:
        """Have ``live`` return."""
        self._queue.put(None)

    @property
    def output(self) -> Output | None:
        """Where a cell prints that runs just now; None where none does."""
        current = self._current
        return None if current is None else current.output

    def _interrupted(self, number: int, frame: types.FrameType | None) -> None:
        # One that was meant for a cell which has just ended must not hit the next one.
        if self._current is not None and self._wanted is self._current:
            self._wanted = None
            raise KeyboardInterrupt

    def _execute(self, call: Call) -> Outcome:
        try:
            return self._attempt(call)
        except KeyboardInterrupt:  # one that struck when the cell had just ended, and would end the driver
            self._current = None
            return interrupted(self._host)

    def _attempt(self, call: Call) -> Outcome:
        try:
            # Each time: an earlier cell may have put its own in this one's place, or have it ignored.
            signal.signal(signal.SIGINT, self._interrupted)
            self._current = call
            # Behind that line, where whoever interrupts it sends a signal: between the two it would run on.
            if call.is_cancelled:
                raise KeyboardInterrupt
            call.begin()
            outcome = self._namespace.do(call.request, call.body)
            self._current = None
        # SystemExit too: a cell that says exit() ends itself, and not the session of everybody.
        except BaseException as error:
            self._current = None
            outcome = outcome_of_error(error, host=self._host)
        return outcome
