"""A plugin for pytest that collects the tests once, and then forks for each run, so that a run begins at once.

Most runs replace only the code of the changed functions. The others import raysm and the tests
anew, which takes
seconds: when a module is imported, its constants and classes reach too many places to replace them.
"""

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import psutil
import pytest

LOG = "last-run.log"
"""In the copy of the tree: what the last run printed."""
MODULE = "RAYSM_MUTATE_MODULE"
"""The variable with the path of the module that is changed."""
PR_SET_CHILD_SUBREAPER = 36
WAIT_S = 0.02
OWN = ("raysm", "tests", "conftest")


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of each function of a module and its classes, but not of those within functions."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # Optimized: not the body of a class.
            if inner.co_name.startswith("<") or inner.co_flags & 1:
                yield inner
            else:
                yield from functions_of(inner)


class Module:
    """The module that is changed, as it was imported."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._code = compile(Path(path).read_text(), path, "exec", dont_inherit=True)
        self._functions: dict[tuple[str, int], list[FunctionType]] = {}
        # The tests' conftest.py has frozen the objects, which hides them.
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.endswith(path):
                self._functions.setdefault(self._key(each.__code__), []).append(each)

    @staticmethod
    def _key(code: CodeType) -> tuple[str, int]:
        return code.co_qualname, code.co_firstlineno

    def replace(self) -> bool:
        """Give the functions the code that the file has now; return whether that can be done."""
        changed = compile(Path(self.path).read_text(), self.path, "exec", dont_inherit=True)
        try:
            for old, new in zip(functions_of(self._code), functions_of(changed), strict=True):
                for function in self._functions.get(self._key(old), ()):
                    function.__code__ = new
        except ValueError:  # as many functions or free variables as before are needed
            return False
        return True


def _run_collected(session: pytest.Session, names: list[str]) -> int:
    items = {item.nodeid: item for item in session.items}
    session.items = [items[name] for name in names]
    try:
        session.config.pluginmanager.getplugin("main").pytest_runtestloop(session)
    except session.Failed:
        return 1
    finally:
        session._setupstate.teardown_exact(None)
    return 0


def _run_anew(arguments: list[str]) -> int:
    for name in list(sys.modules):
        if name.partition(".")[0] in OWN:
            del sys.modules[name]
    return int(pytest.main(arguments))


def _run(session: pytest.Session, module: Module, run: dict) -> None:
    """Run tests in this forked process, and end it with pytest's exit code."""
    os.setsid()
    os.ftruncate(1, 0)
    code = 70
    try:
        if run["collected"] and module.replace():
            code = _run_collected(session, run["collected"])
        else:
            code = _run_anew(run["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(child: int, limit_s: float) -> int | str:
    """Return the exit code of a process, or "timeout"; none of the processes that it started stays."""
    end_s = time.monotonic() + limit_s
    code: int | str = "timeout"
    while time.monotonic() < end_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(WAIT_S)
    # Again and again, since a process may start another one before it is killed.
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(WAIT_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return code


class Server:
    def __init__(self) -> None:
        self._in, self._out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # The children of a process that was killed become those of this one, also if they have a
        # session of their own.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        module = Module(os.environ[MODULE])
        for line in self._in:
            run = json.loads(line)
            sys.stdout.flush()
            child = os.fork()
            if not child:
                _run(session, module, run)
            print(_wait(child, run["limit_s"]), file=self._out, flush=True)
        return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    # Before pytest captures what is printed.
    early_config.pluginmanager.register(Server())
    return (yield)
