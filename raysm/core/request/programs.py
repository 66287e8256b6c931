"""Bases of the kinds that run the user's own code: a program, or a pickled function."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from raysm.core import features
from raysm.core.request.options import decides, optional
from raysm.core.request.workload import Parameters, ScriptWorkload, Workload, of_command_line


class Pickled:
    """A mixin for kinds with the fields ``name`` and ``python``.

    It comes before ``Workload`` among the bases.
    """

    # Empty, because a dataclass with slots can have only one base with slots.
    __slots__ = ()

    # Annotations for type checkers; the kinds declare the fields.
    name: str
    python: str

    @property
    def pickled_by(self) -> str:
        return self.python

    @property
    def title(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Program(ScriptWorkload):
    """The options of every program: a Python script, another script, or a command.

    A file whose name ends with ``.sh`` is run by bash. A file whose first line names another
    interpreter than Python (``#!/usr/bin/env perl``) is run by that. Any other file is a Python
    script.

    Raises:
        InvalidRequest: The script has no name, or its arguments are one text.
    """

    script: str = field(kw_only=False)
    """The script's path; with ``source_dir``, relative to that folder or to the working folder."""
    args: tuple[str, ...] = ()
    """Its arguments, verbatim: ``sys.argv[1:]``."""
    command: bool = False
    """``script`` is a command, such as ``make`` or ``./tool``, which runs with ``args`` where a
    script would run, and is searched for in the instance's ``PATH``. The folder ``source_dir`` is
    sent, if given."""
    source_dir: str | None = None
    """A folder that travels whole, except hidden files, caches, virtual environments and earlier
    results; None is the script with the modules and packages beside it that it imports."""
    in_state: bool = False
    """Run the script in $RAYSM_STATE, with a copy of its source: the next run with ``resume``, or
    after an interruption, finds the files that it wrote to its working folder, such as checkpoints.
    In ``args``, ``{state}`` is replaced by the state folder and ``{channel_NAME}`` by the folder of
    an input, also without this option."""

    def __post_init__(self) -> None:
        self.check_script(type(self).__name__)

    @property
    def parameters(self) -> Parameters:
        return of_command_line(self.args)


def script_at(path: str | Path) -> Program:
    """Return the workload that runs the script at ``path``, which the feature of scripts has.

    Raises:
        MissingDependency: That feature is not installed.
    """
    program: Program = features.view("script")(str(path))
    return program


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledWorkload(Pickled, Workload):
    """The options of every workload whose code travels as a pickle."""

    packages: ClassVar[tuple[str, ...]] = ("cloudpickle",)

    name: str
    """Name for messages: ``module.function``."""
    python: str
    """Version of the Python that pickled the code, ``3.11``; another version may not be able to
    read it."""

    # Both only describe the pickle, whose digest is compared by itself.
    arguments: Mapping[str, Any] = field(default_factory=dict, metadata=decides(result=False))
    """The arguments, as ``raysm.core.request.workload`` shows them."""
    code: str = optional("", result=False)
    """SHA-256 of the function's source; empty if it has none."""

    @property
    def parameters(self) -> Parameters:
        return self.arguments

    @property
    def code_digest(self) -> str:
        return self.code
