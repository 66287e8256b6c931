"""Import the installed package ``rfc3987_syntax`` when it is first used.

The package builds a parser when it is imported, which takes 0.9 s of a core; all of ``import ray`` takes 0.4 s. Ray
imports jsonschema in each of its processes, and jsonschema imports this package if it is installed, which JupyterLab
requires. In a job of two instances ten processes paid for it, a third of the time that the whole job took.

The folder of this module comes last in ``PYTHONPATH`` of Ray's processes, so it comes before installed packages. The
module imports nothing of raysm, because another Python may inherit ``PYTHONPATH``.
"""

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_found = importlib.machinery.PathFinder.find_spec(
    "rfc3987_syntax", [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
)
if _found is None or _found.loader is None:
    raise ModuleNotFoundError("No module named 'rfc3987_syntax'", name="rfc3987_syntax")
__path__ = list(_found.submodule_search_locations or ())
_package: Any = None


def _load() -> Any:
    global _package
    if _package is None:
        assert _found is not None
        assert _found.loader is not None
        package = importlib.util.module_from_spec(_found)
        # Submodules import the package by its name, which has to be the real one by then.
        sys.modules["rfc3987_syntax"] = package
        _found.loader.exec_module(package)
        _package = package
    return _package


def is_valid_syntax(term: str, value: str) -> bool:
    """Return whether ``value`` fits a term of the grammar of RFC 3987; jsonschema imports this name."""
    return bool(_load().is_valid_syntax(term, value))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_load(), name)
