"""``python script_main.py SCRIPT ARGUMENT …``: runs a script as ``python`` does, but leaves faster.

It does what ``python SCRIPT ARGUMENT …`` does.

Torch's static destructors can abort a process whose work is done (SIGABRT,
"terminate called without an active exception"; pytorch issues 190489 and 179291), and tearing down
an interpreter that holds torch or Ray takes seconds. So Python ends as it always does, up to and
including its ``atexit`` handlers: it waits for threads that are no daemons and calls the handlers.
Only then does the process leave by ``os._exit``, after flushing every file that is still open.

A process group of torch that the script destroys is kept until then. Where the last reference to
one is that of a ``DistributedDataParallel``, its destructor keeps the GIL while it waits for Gloo's
threads, and these may wait for the
GIL (pytorch issue 56297): the script would never end.

The module is run by its path and imports only the standard library, because the script's process is
the user's. The command ``raysm`` leaves in the same way.
"""

import atexit
import builtins
import contextlib
import functools
import gc
import importlib.machinery
import io
import os
import signal
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

FILE: type = io.IOBase.__mro__[1]
OUTPUT_LOST = 120


def command(script: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, __file__, script, *arguments]


def leave_at_once_after_exit_handlers() -> Callable[[int], None]:
    """Make this process leave by ``os._exit`` after its exit handlers.

    Returns:
        A function that sets its exit status.

    Call it before anything else registers an exit handler: the first that is registered is called
    last.
    """
    status = 0

    def set_status(value: int) -> None:
        nonlocal status
        status = value

    atexit.register(lambda: _leave(status))
    return set_status


class KeepGroups:
    """A finder for ``sys.meta_path`` that keeps destroyed process groups of torch.

    It changes torch's module of process groups when that is imported.
    """

    name = "torch.distributed.distributed_c10d"

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def find_spec(
        self, name: str, path: Any, _target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(self._execute, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec

    def _execute(
        self, execute: Callable[[types.ModuleType], None], module: types.ModuleType
    ) -> None:
        execute(module)
        destroy = module.destroy_process_group

        @functools.wraps(destroy)
        def destroy_but_keep(*args: Any, **named: Any) -> None:
            self._kept += module._pg_map
            destroy(*args, **named)

        module.destroy_process_group = destroy_but_keep  # type: ignore[attr-defined]
        init = module.init_process_group

        @functools.wraps(init)
        def init_and_show(*args: Any, **named: Any) -> None:
            # ``raysm stacks`` shows the collectives of the group.
            load_by_path("answers").answer_with_collectives(
                sys.modules["torch"]._C._distributed_c10d
            )
            init(*args, **named)

        module.init_process_group = init_and_show  # type: ignore[attr-defined]


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Run ``script`` as if Python had been started with it.

    The script sees the same ``sys.argv``, ``sys.path[0]`` and ``__main__``.

    Unlike with ``runpy.run_path``, the module stays: threads and exit handlers that outlive the
    last line find it.
    """
    main_module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", script)
    # ``__spec__`` stays None, as for every script: then multiprocessing's children find the script
    # by ``__file__``.
    main_module.__dict__.update(
        __file__=script, __cached__=None, __loader__=loader, __builtins__=builtins
    )
    sys.modules["__main__"] = main_module
    sys.argv[:] = [script, *arguments]
    sys.path[0:1] = [os.path.dirname(os.path.realpath(script))]
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)


def main(arguments: Sequence[str]) -> int:
    try:
        run_script(arguments[0], arguments[1:])
    except SystemExit as error:
        return exit_status_of(error)
    except BaseException as error:
        _print(error)
        if isinstance(error, KeyboardInterrupt):
            # Python ends by the signal itself, so that a shell sees what stopped the script.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def exit_status_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201
    return 1


def _print(error: BaseException) -> None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    error.__traceback__ = frames
    sys.excepthook(type(error), error, frames)


def _leave(status: int) -> None:
    _flush_files()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except (OSError, ValueError):
            status = status if stream is sys.stderr else status or OUTPUT_LOST
    os._exit(status)


def _flush_files() -> None:
    """Write out files that are still open.

    Python writes them out as it destroys them, which does not happen here.
    """
    gc.unfreeze()
    standard = {id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)}
    # Compare types, because ``isinstance`` would run code of proxy objects.
    kinds = (FILE, sys.modules["zipfile"].ZipFile) if "zipfile" in sys.modules else FILE
    found = [
        item
        for item in gc.get_objects()
        if issubclass(type(item), kinds) and id(item) not in standard
    ]
    plain = [item for item in found if type(item).__module__ == FILE.__module__]
    others = [item for item in found if type(item).__module__ != FILE.__module__]
    # Closing a gzip file, or an uploading one, writes its last bytes into other files, which are
    # flushed again.
    _try_each(plain, "flush")
    _try_each(others, "close")
    _try_each(plain, "flush")


def _try_each(files: Sequence[Any], method: str) -> None:
    for file in files:
        with contextlib.suppress(Exception):
            getattr(file, method)()


def show_stacks(role: str) -> None:
    """Let ``raysm stacks`` see this process; see ``stack_signal``, also loaded by its path."""
    load_by_path("stack_signal").register(role)


def load_by_path(name: str) -> Any:
    """Return a module of this folder without importing raysm."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    loader = importlib.machinery.SourceFileLoader(f"raysm_{name}", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    show_stacks("script")
    sys.meta_path.insert(0, KeepGroups())
    set_exit_status = leave_at_once_after_exit_handlers()
    exit_status = main(sys.argv[1:])
    set_exit_status(exit_status)
    sys.exit(exit_status)
