"""The namespace of a session's cells: an IPython shell whose rich output is sent to the client.

Cells are compiled under the name and with the line numbers that the client shows, and failures keep
only the frames of the user's code.
"""

import asyncio
import base64
import contextlib
import importlib
import json
import linecache
import os
import shutil
import sys
import tempfile
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from IPython.core import page
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from raysm.core.protocol import stack_signal
from raysm.core.protocol.parcels import load
from raysm.errors import InvalidRequest
from raysm.features.session.cluster.outcomes import pack_value
from raysm.features.session.cluster.output import refuse_input
from raysm.features.session.protocol import CELL, PULL, PUSH, CallRequest, Outcome
from raysm.instance.environment import inherited, tell
from raysm.instance.work.forks import ending_forks

Display = Callable[[Mapping[str, Any]], None]
"""Sends one display to the client: ``data``, ``metadata``, ``transient``, ``update``; or
``clear``."""

INLINE = "module://matplotlib_inline.backend_inline"
IPYTHON = str(Path(page.__file__).parents[1])
WIDGET = "application/vnd.jupyter.widget-view+json"
"""Left out: a session has no connection for widgets, and a notebook would show an error in place of
their text."""
MAX_DISPLAY_BYTES = 32 << 20
"""A larger display is replaced by its text."""


def show_figures_inline() -> None:
    """Let ``plt.show()`` send pictures, as in a notebook, unless the user chose a backend."""
    if "MPLBACKEND" not in inherited():
        tell({"MPLBACKEND": INLINE})


class _Compiler(CachingCompiler):  # type: ignore[misc]
    """Names the next cell as its client does, and counts its lines from the first, empty or not."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self._next: tuple[str, str] | None = None
        self._current = ""
        self._skipped = 0

    def expect(self, filename: str, source: str) -> None:
        self.names.add(filename)
        self._next = filename, source

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        # Only the cell itself: code that it runs through get_ipython() gets IPython's names.
        if self._next is None:
            name: str = super().cache(transformed_code, number, raw_code)
            return name
        self._current, source = self._next
        self._next = None
        lines = source.splitlines(keepends=True)
        code = transformed_code.splitlines(keepends=True)
        # IPython removes empty lines at the top.
        self._skipped = next((index for index, line in enumerate(lines) if line.strip()), 0)
        if len(lines) != len(code) + self._skipped:  # a magic over several lines became one
            lines = ["\n"] * self._skipped + code
        # Without a modification time, so that linecache never looks for the file.
        linecache.cache[self._current] = (len(source), None, lines, self._current)
        self._filename_map[self._current] = number
        return self._current

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> Any:
        skipped = self._skipped if filename == self._current else 0
        return super().ast_parse("\n" * skipped + source, filename, symbol)


class _Publisher(DisplayPublisher):  # type: ignore[misc]
    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        source: object = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        bundle = {
            "data": _as_json(data),
            "metadata": metadata or {},
            "transient": transient or {},
            "update": update,
        }
        self.shell.send_display(bundle)

    def clear_output(self, wait: bool = False) -> None:
        self.shell.send_display({"clear": wait})


class _ResultHook(DisplayHook):  # type: ignore[misc]
    def write_output_prompt(self) -> None:
        pass

    def write_format_data(
        self, format_dict: Mapping[str, Any], md_dict: Mapping[str, Any] | None = None
    ) -> None:
        self.shell.shown = _as_json(format_dict), dict(md_dict or {})

    def log_output(self, format_dict: Mapping[str, Any]) -> None:
        pass  # IPython would keep each picture for its history

    def finish_displayhook(self) -> None:
        self._is_active = False


def _as_json(data: Mapping[str, Any]) -> dict[str, Any]:
    content = {}
    for mime, value in data.items():
        if mime == WIDGET:
            continue
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        elif not isinstance(value, str):
            value = json.loads(json.dumps(value, default=repr))
        content[mime] = value
    return content


class _TextBars(types.ModuleType):
    """Stands for ``tqdm.notebook``, whose bars are widgets: the same names draw bars of text."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(
            importlib.import_module("tqdm"),
            {"tqdm_notebook": "tqdm", "tnrange": "trange"}.get(name, name),
        )


class _Shell(InteractiveShell):  # type: ignore[misc]
    compiler_class = Type(_Compiler)
    display_pub_class = Type(_Publisher)
    displayhook_class = Type(_ResultHook)

    def __init__(self, display: Display, **traits: Any) -> None:
        self._display = display
        self._loop: asyncio.AbstractEventLoop | None = None
        self.shown: tuple[Mapping[str, Any], Mapping[str, Any]] = {}, {}
        super().__init__(**traits)
        self.set_hook("show_in_pager", page.as_hook(page.display_page), 99)
        self.loop_runner = self._run_in_loop

    def send_display(self, bundle: Mapping[str, Any]) -> None:
        size = sum(
            len(value) for value in bundle.get("data", {}).values() if isinstance(value, str)
        )
        if size > MAX_DISPLAY_BYTES:
            text = f"<a display of {size >> 20} MB, which is too large to send>"
            bundle = {**bundle, "data": {"text/plain": text}, "metadata": {}}
        self._display(bundle)

    # The parts of a terminal's shell that a session does not have

    def init_sys_modules(self) -> None:
        pass  # Namespace.as_main does it, and undoes it

    def init_virtualenv(self) -> None:
        pass  # it warns

    def init_user_ns(self) -> None:
        super().init_user_ns()
        # They end the cell; IPython's would end a terminal.
        names = dict.fromkeys(("exit", "quit"), sys.exit)
        self.user_ns.update(names)
        self.user_ns_hidden.update(names)

    def enable_gui(self, gui: str | None = None) -> None:
        if gui:
            raise UsageError(f"a session has no screen for {gui!r}; use %matplotlib inline")

    def _format_exception_for_storage(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        # The cell's failure is sent as its outcome. Those of %run and of callbacks are printed.
        if not (kwargs.get("running_compiled_code") or kwargs.get("exception_only")):
            super().showtraceback(*args, **kwargs)

    def showsyntaxerror(
        self, filename: str | None = None, running_compiled_code: bool = False
    ) -> None:
        pass

    def showindentationerror(self) -> None:
        pass

    def _run_in_loop(self, coroutine: Any) -> Any:
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        finally:
            # An interrupted cell must not go on when the next one awaits something.
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


def _remove_folder(folder: str, owner: int) -> None:
    # A process that a cell has forked may end as a program ends.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class Namespace:
    def __init__(self, display: Display = lambda bundle: None, folder: Path | None = None) -> None:
        self._module = types.ModuleType("__main__")
        own = tempfile.mkdtemp(prefix="raysm-ipython-", dir=folder)
        self._remove = weakref.finalize(self, _remove_folder, own, os.getpid())
        # IPython advises on the keys of a terminal when a cell raises SystemExit.
        warnings.filterwarnings("ignore", "To exit: use")
        sys.modules.setdefault("tqdm.notebook", _TextBars("tqdm.notebook"))
        main = sys.modules["__main__"]
        try:
            config = Config(HistoryManager={"enabled": False}, HistoryAccessor={"enabled": False})
            self._shell = _Shell(display, user_module=self._module, ipython_dir=own, config=config)
        finally:
            sys.modules["__main__"] = main
        self._number = 0
        self._kinds = {CELL: self._cell, PUSH: self._push, PULL: self._pull}

    @property
    def names(self) -> dict[str, Any]:
        names: dict[str, Any] = self._shell.user_ns
        return names

    @contextlib.contextmanager
    def as_main(self) -> Iterator[None]:
        main = sys.modules["__main__"]
        argv = sys.argv[:]
        # So that classes of cells are pickled by value, as in a notebook.
        sys.modules["__main__"] = self._module
        kinds = list(_Shell._walk_mro())
        before = [kind._instance for kind in kinds]
        for kind in kinds:
            kind._instance = self._shell
        try:
            with refuse_input():
                yield
        finally:
            for kind, instance in zip(kinds, before, strict=True):
                kind._instance = instance
            sys.modules["__main__"] = main
            sys.argv[:] = argv

    def close(self) -> None:
        self._shell.close()
        self._remove()

    def execute(self, request: CallRequest, body: Any) -> Outcome:
        with ending_forks():
            return self._kinds[request.kind](request, body)

    def _cell(self, request: CallRequest, body: Any) -> Outcome:
        self._number += 1
        source = bytes(body).decode()
        filename = request.filename or f"<cell {self._number}>"
        if request.filename:
            sys.argv[:] = [filename, *request.args]
        shell = self._shell
        stack_signal.show_cell(filename, source)
        shell.compile.expect(filename, source)
        shell.shown = {}, {}
        result = shell.run_cell(source, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            if isinstance(error, UsageError):  # a magic was called wrongly
                raise InvalidRequest(str(error))
            raise error.with_traceback(self._keep_user_frames(error))
        shown, metadata = shell.shown
        shell.shown = {}, {}
        return Outcome(shown=shown, metadata=metadata)

    def _keep_user_frames(self, error: BaseException) -> types.TracebackType | None:
        """Return the frames from the cell's on, without IPython's; None if it never began."""
        kept: list[types.TracebackType] = []
        each = error.__traceback__
        while each is not None:
            filename = each.tb_frame.f_code.co_filename
            if filename in self._shell.compile.names or (kept and not filename.startswith(IPYTHON)):
                kept.append(each)
            each = each.tb_next
        trace = None
        for each in reversed(kept):
            trace = types.TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
        return trace

    def _push(self, request: CallRequest, body: Any) -> Outcome:
        # Pickled as a call is, so that the user's own modules travel along with the values.
        _, _, values = load(body)
        self.names.update(values)
        return Outcome()

    def _pull(self, request: CallRequest, body: Any) -> Outcome:
        names: list[str] = json.loads(bytes(body))
        # The error lists all missing names.
        missing = [name for name in names if name not in self.names]
        if missing:
            where = f"{request.host}'s namespace in the session" if request.host else "the session"
            raise NameError(f"{where} has no {', '.join(map(repr, missing))}")
        return Outcome(
            pickled=pack_value({name: self.names[name] for name in names}, ", ".join(names))
        )
