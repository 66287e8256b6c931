"""What one task is given: a tile of pairs of rows, and what was known of them when it was dispatched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import TileBlock
from raysm.workloads.similarity.tasks.context import Context

__all__ = ["Comparing", "FreeTile", "TileTask"]


class TileTask(Protocol):
    """A tile, as a mode sees it wherever the rows lie. ``str`` of it names it in messages and in the record."""

    @property
    def tile(self) -> TileBlock:
        """Places of the queries' rows, and of the matrix's."""
        ...

    @property
    def mirrored(self) -> bool:
        """Whether the tile serves its columns too: of a self-join, all tiles but those on the diagonal do."""
        ...

    @property
    def area(self) -> float:
        """The work: its pairs, of a block with itself each unordered one, and a row with itself by half."""
        ...

    @property
    def hint(self) -> Any:
        """What the mode knew when the task was dispatched; none of it changes the answer."""
        ...

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in the matrix of queries by their places."""
        ...

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the matrix by their places."""
        ...


class Comparing(Protocol):
    """What tasks do: a mode, or what hands over what a mode finds."""

    def compare(self, context: Context, task: TileTask) -> Mapping[str, NDArray[Any]]:
        """Do one task, where the rows of its tile can be read; return what the head takes in."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FreeTile:
    """A tile that any instance can compute: the rows lie whole everywhere, so their places are their numbers."""

    tile: TileBlock
    """Which pairs."""
    self_join: bool
    """The rows are those of one matrix."""
    hint: Any = None
    """See ``TileTask``."""

    @property
    def mirrored(self) -> bool:
        """Whether the tile serves its columns too."""
        return self.self_join and self.tile.rows != self.tile.columns

    @property
    def area(self) -> float:
        """The work, see ``TileTask``."""
        entries = self.tile.rows.rows * self.tile.columns.rows
        # Of a block with itself every pair stands there twice.
        return entries / 2 if self.self_join and not self.mirrored else entries

    # The same array, not a copy: by that the modes see that nothing has to be renumbered or sorted.
    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places."""
        return places

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places."""
        return places

    def __str__(self) -> str:
        """Return the tile's name: records and messages know it by that."""
        # Without the hint: another run is told other bounds, and has to find the part all the same.
        return str(self.tile)
