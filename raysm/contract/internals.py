"""Internal names of other packages that raysm uses, and a checklist of them for a new release.

A name is imported when it is looked up. If the installed package lacks it, the error says what raysm needs it for.
"""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from raysm.errors import MissingDependency


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A package whose internals raysm uses."""

    title: str
    """As people call it."""
    distribution: str
    """As pip does."""
    user: str
    """Who uses it: ``raysm``."""
    remedy: str
    """What to do where it lacks something that is needed."""

    @property
    def version(self) -> str:
        """That of the installed one."""
        try:
            # By pip's record: nothing has to be imported to learn a number.
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "(not installed)"


class Entry(Protocol):
    """One line of a checklist."""

    @property
    def path(self) -> str:
        """What it is."""

    @property
    def purpose(self) -> str:
        """What is done with it."""

    @property
    def is_needed(self) -> bool:
        """Whether nothing goes without it."""

    def gap(self) -> str | None:
        """Return what the installed package lacks of it, for people; None if nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Internal:
    """One name of Python code."""

    library: ClassVar[Library]

    module: str
    """Where it is."""
    name: str = ""
    """Its name there, dots within; empty for the module itself."""
    purpose: str
    """What is done with it; where it is spared, what is left out without it."""
    is_needed: bool = True
    """Whether nothing goes without it."""
    fits: Callable[[Any], bool] = callable
    """Whether what is there still has the form that is expected."""

    @property
    def path(self) -> str:
        """Its whole name."""
        return f"{self.module}.{self.name}".rstrip(".")

    def find(self) -> Any:
        """Return it.

        Raises:
            MissingDependency: The installed package lacks it, or has it in another form.
        """
        gap, library = self.gap(), self.library
        if gap is not None:
            # Said where it is looked for, with what was to be done: far from here it would be an AttributeError.
            raise MissingDependency(
                f"{library.title} {library.version} has {gap}, which {library.user} needs to {self.purpose}; "
                f"{library.remedy}"
            )
        return self.resolve()

    def gap(self) -> str | None:
        """Return what the installed package lacks of it, for people; None if nothing."""
        try:
            value = self.resolve()
        except (ImportError, AttributeError):
            return f"no {self.path}"
        except Exception as error:  # a module of another release may fail in any way while it is imported
            return f"no {self.path} ({type(error).__name__}: {error})"
        try:
            reason = None if self.fits(value) else ""
        except Exception as error:  # what cannot be looked into has another form than the one that is expected
            reason = f" ({type(error).__name__}: {error})"
        return None if reason is None else f"another {self.path} than the one that is known{reason}"

    def resolve(self) -> Any:
        """Return what is there, whatever it is; raise as the import of another release does."""
        value: Any = importlib.import_module(self.module)
        for part in filter(None, self.name.split(".")):
            value = getattr(value, part)
        return value


def gaps_of(entries: Collection[Entry]) -> dict[Entry, str]:
    """Return what the installed package lacks, by entry."""
    gaps = {entry: entry.gap() for entry in entries}
    return {entry: gap for entry, gap in gaps.items() if gap}


def check_all(library: Library, entries: Collection[Entry]) -> int:
    """Print the checklist; return 1, an exit code, when something is missing."""
    gaps = gaps_of(entries)
    sys.stdout.write(f"{library.title} {library.version}\n")
    for entry in entries:
        sys.stdout.write(f"{'MISSING' if entry in gaps else 'ok     '} {entry.path}\n")
        if entry in gaps:
            loss = f"{library.user} cannot " if entry.is_needed else "left out: "
            sys.stdout.write(f"        {gaps[entry]}; {loss}{entry.purpose}\n")
    sys.stdout.write(f"{len(entries) - len(gaps)} of {len(entries)} are there\n")
    return 1 if gaps else 0
