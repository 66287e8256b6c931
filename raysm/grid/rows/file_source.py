"""What sources that are files have in common: a path flows in where its name fits, what a grid remembers flows out."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from raysm.grid.rows.source import Source

__all__ = ["FileSource"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSource(Source):
    """A file, known by its name alone: it need not be there yet."""

    path: Path
    """Of the file."""

    @classmethod
    @abc.abstractmethod
    def reads(cls, path: Path) -> bool:
        """Whether a file of this name is of this kind."""

    @classmethod
    def of(cls, rows: Any) -> Self | None:
        """Return the file where a path ends so."""
        return cls(path=Path(rows)) if isinstance(rows, str | Path) and cls.reads(Path(rows)) else None

    @classmethod
    def again(cls, description: Mapping[str, Any]) -> Self | None:
        """Return the file that was described so, if its name is one of this kind."""
        # As when it was first given: which format it is, nobody has written down.
        return cls.of(description["file"]) if "file" in description else None

    @property
    def description(self) -> dict[str, Any]:
        """The path."""
        # Absolute: the grid may be gone on with in another folder.
        return {"file": str(self.path.absolute())}
