"""The package ``rfc3987_syntax``, brought when an IRI is first checked.

It builds an Earley parser of its whole grammar as it is imported, which takes 0.9 s of a core, where all of ``import
ray`` takes 0.4 s. jsonschema imports it wherever it is installed; whoever installs JupyterLab has it (jupyter-events
needs ``jsonschema[format-nongpl]``). Ten processes of a job of two instances did, a third of all that the job cost.
What flows in is ``is_valid_syntax``, asked for and hardly ever called.
"""

from typing import Any

try:
    from raysm_deferred import Package
except ModuleNotFoundError:  # as a part of raysm
    from raysm.bootstrap.deferred.raysm_deferred import Package

__all__ = ["is_valid_syntax"]

_package = Package("rfc3987_syntax")
__path__ = _package.path


def is_valid_syntax(term: str, value: str) -> bool:
    """Return whether a value is what a term of the grammar says."""
    # jsonschema asks for it by "from … import", long before it calls it.
    return bool(_package.ask("is_valid_syntax")(term, value))


def __getattr__(name: str) -> Any:
    return _package.ask(name)
