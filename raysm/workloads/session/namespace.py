"""A namespace in which cells run: source flows in, and values by name; what flows out are outcomes.

Each instance may have one: the head's lives in the driver, those of others in a process of Ray's.
"""

import ast
import asyncio
import base64
import contextlib
import json
import linecache
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raysm.contract.session import CELL, PULL, PUSH, CallRequest, Outcome
from raysm.workloads.pickles import pickled_value

__all__ = ["Namespace", "shown"]

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
        """Begin empty."""
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
