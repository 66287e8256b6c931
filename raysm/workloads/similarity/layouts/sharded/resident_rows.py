"""What a task has at hand of a sharded matrix: the rows of its own instance, and those of one visitor.

To the tasks, which are those of a replicated matrix, a sharded one has its rows *in line*: those of the first instance,
then those of the second. So a parcel is one range of rows. Within an instance they are in the order of the matrix, and
a task compares one instance's rows with one instance's, so ties are decided as they are there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.layouts.sharded.schedule import Parcel
from raysm.workloads.similarity.reading.matrix import Matrix
from raysm.workloads.similarity.tasks.context import Context, Source

__all__ = ["AtHand", "ShardContext", "portion", "welcome"]


class AtHand:
    """The rows in line that can be read here, as far as tasks read a ``Matrix``."""

    def __init__(self, own: Matrix, start: int) -> None:
        """Begin with the instance's own rows, which lie in line from ``start`` on."""
        self._own, self._start = own, start
        self._visitor: tuple[int, Matrix] | None = None

    @property
    def rows(self) -> int:
        """How many the instance has."""
        return self._own.rows

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self._own.columns

    @property
    def elements(self) -> int:
        """How many the instance stores."""
        return self._own.elements

    @property
    def own(self) -> RowBlock:
        """The instance's own rows, in line."""
        return RowBlock(self._start, self._start + self._own.rows)

    def welcome(self, start: int, rows: Matrix | None) -> None:
        """Take in a visitor, whose rows lie in line from ``start`` on; the one before it leaves."""
        self._visitor = None if rows is None else (start, rows)

    def find(self, start: int, stop: int) -> tuple[Matrix, int]:
        """Return the matrix that holds rows start to stop in line, and where it begins there.

        Raises:
            InvalidInput: They are not here.
        """
        for begin, matrix in ((self._start, self._own), self._visitor or (0, None)):
            if matrix is not None and begin <= start and stop <= begin + matrix.rows:
                return matrix, begin
        raise InvalidInput(
            f"rows {start} to {stop - 1} in line are not at hand; the files of this instance changed while the job ran"
        )

    def read(self, start: int, stop: int) -> Rows:
        """Return rows[stop - start, D] in line."""
        matrix, begin = self.find(start, stop)
        return matrix.read(start - begin, stop - begin)

    def read_sparse(self, start: int, stop: int) -> SparseRows:
        """Return the same rows by their elements."""
        matrix, begin = self.find(start, stop)
        return matrix.read_sparse(start - begin, stop - begin)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardContext(Context):
    """What is the same for all tasks of a sharded matrix. Its rows, with ``norms`` and ``exponents``, are in line."""

    starts: Mapping[str, int] = field(default_factory=dict)
    """Where each instance's rows begin in line."""

    def open(self) -> Any:
        """Return what this process has at hand."""
        return _at_hand(self.source, self.starts, self.dtype)

    def tile(self, matrix: Any, start: int, stop: int) -> Tile:
        """Read rows start to stop in line."""
        found, begin = matrix.find(start, stop)
        norms, exponents = self.norms[begin : begin + found.rows], self.exponents[begin : begin + found.rows]
        context = replace(self._as_context(), rows=found.rows, norms=norms, exponents=exponents)
        tile = context.tile(found, start - begin, stop - begin)
        return Tile(start=start, rows=tile.rows, norms=tile.norms)

    def sample(self, rows: int) -> Tile:
        """Return some of the instance's own rows."""
        here = self.open()
        return self.tile(here, here.own.start, min(here.own.start + rows, here.own.stop))

    def _as_context(self) -> Context:
        return Context(**{one.name: getattr(self, one.name) for one in fields(Context)})


_found: dict[tuple[Source, str], AtHand] = {}
"""The one of this process."""


def _at_hand(source: Source, starts: Mapping[str, int], dtype: np.dtype[Any]) -> AtHand:
    place = source.here()
    key = source, dtype.str
    if key not in _found:
        own = source.open()
        _found.clear()
        _found[key] = AtHand(own.portion(0, own.rows, dtype), starts[place.host])
    return _found[key]


def portion(source: Source, parcel: Parcel, dtype: np.dtype[Any]) -> Matrix:
    """Return a parcel's rows on the instance that has them; what is pickled of it are these rows alone.

    Raises:
        InvalidInput: They are not there any more.
    """
    own = source.open()
    if own.rows < parcel.stop:
        raise InvalidInput(f"{parcel.host} has {own.rows} rows, and had more: its files changed while the job ran")
    return own.portion(parcel.start, parcel.stop, dtype)


def welcome(context: ShardContext, parcel: Parcel | None, rows: Matrix | None) -> AtHand:
    """Make a visitor's rows readable in this process; None: there is none."""
    here: AtHand = context.open()
    here.welcome(0 if parcel is None else context.starts[parcel.host] + parcel.start, rows)
    return here
