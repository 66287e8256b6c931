"""The package ``rfc3987_syntax``, brought when an IRI is first checked.

It builds an Earley parser of its whole grammar as it is imported, which takes 0.9 s of a core, where all of ``import
ray`` takes 0.4 s. jsonschema imports it wherever it is installed, and Ray imports jsonschema in every process; whoever
installs JupyterLab has it (jupyter-events needs ``jsonschema[format-nongpl]``). Ten processes of a job of two instances
did, a third of all that the job cost. What flows in is ``is_valid_syntax``, asked for and hardly ever called.
"""

import functools
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["is_valid_syntax"]

NAME = "rfc3987_syntax"


def _find() -> ModuleSpec:
    folder = Path(__file__).resolve().parent
    spec = PathFinder.find_spec(NAME, [entry for entry in sys.path if Path(entry).resolve() != folder])
    if spec is None:
        # As if this module were not there either: jsonschema does without, then.
        raise ModuleNotFoundError(f"No module named {NAME!r}", name=NAME)
    return spec


_spec = _find()

# Python asks a module for it at every "from … import": without it, __getattr__ would bring the package at once. With
# it, the package's own modules are found below this one.
__path__ = list(_spec.submodule_search_locations or ())


@functools.cache
def _bring() -> ModuleType:
    module = importlib.util.module_from_spec(_spec)
    assert _spec.loader is not None, "a package that is found has one"
    _spec.loader.exec_module(module)
    return module


def is_valid_syntax(term: str, value: str) -> bool:
    """Return whether a value is what a term of the grammar says."""
    return bool(_bring().is_valid_syntax(term, value))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_bring(), name)
