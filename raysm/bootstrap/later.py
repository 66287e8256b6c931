"""A package that is there as soon as it is imported, and is executed when something of it is first used.

What flows in is the name of a package, what flows out is a module of that name, which executes itself. Python's own
``importlib.util.LazyLoader`` does the like, but up to 3.11 lets a second thread use what the first is still executing
(https://github.com/python/cpython/issues/114763).
"""

import importlib.util
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["bring_later", "find_elsewhere"]

# One for all: two of them that use each other, from two threads, would each wait for the other's.
LOCK = threading.RLock()
PATIENCE_S = 60.0
"""Far more than any of them takes to execute: a thread that waits longer holds what the executing one waits for, as it
can where both import modules within the package, and gets by without."""
EXECUTING: set[str] = set()
"""Names of those that are executing, of which their own code is to see what there is so far."""


class _Later(ModuleType):
    """A module that executes itself; from then on it is a module as any other."""

    def __getattr__(self, name: str) -> Any:
        # Not __getattribute__: what an import sets is there, and importing it alone executes nothing.
        self._execute()
        return ModuleType.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        self._execute()
        return list(ModuleType.__dir__(self))

    def _execute(self) -> None:
        if not LOCK.acquire(timeout=PATIENCE_S):
            return
        try:
            name = self.__name__
            spec = self.__spec__
            if type(self) is not _Later or name in EXECUTING or spec is None or spec.loader is None:
                return
            EXECUTING.add(name)
            try:
                spec.loader.exec_module(self)
                # Only now: others wait at the lock for what is not there yet.
                self.__class__ = ModuleType  # type: ignore[assignment]
            finally:
                EXECUTING.remove(name)
        finally:
            LOCK.release()


def find_elsewhere(name: str, folder: Path) -> ModuleSpec:
    """Return where Python would find a package if ``folder`` were not on its path.

    Raises:
        ModuleNotFoundError: It is nowhere else.
    """
    spec = PathFinder.find_spec(name, [entry for entry in sys.path if Path(entry).resolve() != folder])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return spec


def bring_later(name: str, file: str) -> None:
    """Let the package ``name`` stand for the module that calls this, and be executed when it is first used.

    Args:
        name: By which others import it, and the caller in its place.
        file: Its ``__file__``: the package is looked for everywhere else.

    Raises:
        ModuleNotFoundError: It is nowhere else.
    """
    spec = find_elsewhere(name, Path(file).resolve().parent)
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Later
    current = sys.modules.get(name)
    # One that somebody has imported already stays: others may hold what it consists of.
    if current is None or getattr(current, "__file__", None) == file:
        # Python's import returns what stands here when the importing module is through.
        sys.modules[name] = module
