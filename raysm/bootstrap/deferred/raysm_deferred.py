"""What the stand-ins of this folder have in common: to find the package that each stands for, and to bring it.

A module of its own, without raysm: another Python that inherits ``PYTHONPATH`` may have none. What flows in is a name,
what flows out are the places of the package's own modules, and what the package has, once somebody asks for it.
"""

import importlib.util
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Package"]

ASKED = ("__all__", "__version__")
"""Names in underscores that people ask for; all others Python itself does, while it imports or prints a module."""


class Package:
    """An installed package that is not brought yet.

    Attributes:
        path: Where its own modules are. With it in ``__path__`` a stand-in is a package, and Python, which asks for
            that at every "from … import", brings nothing.
    """

    def __init__(self, name: str) -> None:
        """Find it, without what stands in for it.

        Raises:
            ModuleNotFoundError: It is not installed: as if the stand-in were not there either.
        """
        self._name = name
        self._spec = _find(name)
        self._module: ModuleType | None = None
        self._bringing = threading.local()
        self.path = list(self._spec.submodule_search_locations or ())

    def ask(self, name: str) -> Any:
        """Return what the package has by this name; the first that is asked for brings it."""
        if name.startswith("__") and name not in ASKED:
            raise AttributeError(name)
        # What it imports may ask for what it has until then. Another thread brings it once more, which is of no harm:
        # a lock beside those of Python's imports, which know each other, might be waited for crosswise.
        module = self._module or getattr(self._bringing, "module", None)
        if module is None:
            module = self._bringing.module = importlib.util.module_from_spec(self._spec)
            try:
                assert self._spec.loader is not None, "a package that is found has one"
                self._spec.loader.exec_module(module)
            finally:
                del self._bringing.module
            self._module = module
        try:
            return getattr(module, name)
        except AttributeError:
            # Python has told the stand-in of the modules that were imported meanwhile.
            part = sys.modules.get(f"{self._name}.{name}")
            if part is None:
                raise
            return part


def _find(name: str) -> ModuleSpec:
    folder = Path(__file__).resolve().parent
    others = [entry for entry in sys.path if Path(entry).resolve() != folder]
    # Packages that are installed to be edited have finders of their own.
    for finder in sys.meta_path:
        spec = (
            finder.find_spec(name, others if finder is PathFinder else None) if hasattr(finder, "find_spec") else None
        )
        if spec is not None and not (spec.origin and Path(spec.origin).resolve().parent == folder):
            return spec
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
