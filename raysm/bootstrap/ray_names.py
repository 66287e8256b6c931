"""Look for names in the installed Ray: in its modules, in the text of its source, among its settings.

``ray_internals`` lists the names that raysm uses.
"""

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from raysm.bootstrap.log import remark
from raysm.contract import internals
from raysm.contract.internals import Library

NATIVE = ("_raylet.so", "core/src/ray/raylet/raylet", "core/src/ray/gcs/gcs_server")
"""Ray's compiled programs, below its package."""


RAY = Library(title="Ray", distribution="ray", user="raysm", remedy="use another Ray")


@dataclass(frozen=True, kw_only=True, slots=True)
class Internal(internals.Internal):
    """One name of Ray's Python code."""

    library: ClassVar[Library] = RAY

    is_needed: bool = False
    """Whether raysm cannot do without it."""
    fits: Callable[[Any], bool] = bool
    """Whether what is there still has the form that raysm expects."""

    def find(self) -> Any:
        """Return it; None, with one warning, where it is missing or has another form and is spared.

        Raises:
            MissingDependency: It is needed.
        """
        if self.is_needed or has_all([self]):
            return internals.Internal.find(self)  # super() would look for the class that slots=True has replaced
        return None

    def replace(self, adapt: Callable[[Any], Any]) -> None:
        """Let Ray use what ``adapt`` makes of it; nothing but a warning where it is missing."""
        original = self.find()
        if original is None:
            return
        # In its owner, module or class: Ray's own calls look it up there each time.
        owner, _, name = self.path.rpartition(".")
        parent = Internal(module=self.module, name=owner.removeprefix(self.module).strip("."), purpose=self.purpose)
        setattr(parent.resolve(), name, adapt(original))


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Words of Ray's source that raysm looks for, in its log or on a command line."""

    is_needed: ClassVar[bool] = False
    words: str
    """As they stand in the source."""
    module: str
    """Whose source it is."""
    purpose: str
    """What is left out without them."""

    @property
    def path(self) -> str:
        """Where they stand."""
        return f"{self.words!r} in {self.module}"

    def gap(self) -> str | None:
        """Return what the installed Ray lacks of it, for people; None if nothing."""
        return None if self.words in _source(self.module) else f"no {self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """An environment variable of Ray's, which passes over those that it does not know."""

    is_needed: ClassVar[bool] = False
    name: str
    """As it is set."""
    purpose: str
    """What does not happen without it."""
    module: str = ""
    """The module that reads it; empty for Ray's compiled programs."""

    @property
    def path(self) -> str:
        """Its name, and who reads it."""
        return f"{self.name} in {self.module or 'its compiled programs'}"

    def gap(self) -> str | None:
        """Return what the installed Ray lacks of it, for people; None if nothing."""
        return None if self._is_known() else f"no {self.path}"

    def _is_known(self) -> bool:
        if self.module:
            return f'"{self.name}"' in _source(self.module)
        # RAY_CONFIG(type, name, default) of ray_config_def.h becomes a read of the variable "RAY_" #name: the name is
        # a string of its own in the binary, between NULs. Asking Config in Python would not do: it shows a part only.
        return any(f"\0{self.name}\0".encode() in program for program in _programs())


def has_all(entries: "Iterable[Internal | Text | Setting]") -> bool:
    """Return whether the installed Ray has them all; without one there is one warning, of what is left out."""
    for entry in entries:
        if (gap := entry.gap()) is not None:
            remark(f"warning: Ray {RAY.version} has {gap}; left out: {entry.purpose}")
            return False
    return True


def _source(module: str) -> str:
    """Return a module's source without importing it; empty if it does not exist."""
    # find_spec imports the parents alone: some of these modules would start threads, or need a cluster.
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return ""
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


def _programs() -> list[bytes]:
    spec = importlib.util.find_spec("ray")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    return [(folder / name).read_bytes() for name in NATIVE if (folder / name).exists()]
