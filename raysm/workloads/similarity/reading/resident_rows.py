"""The rows that a process can read: those that its instance has, and those of one chunk that came from another.

Rows are known by their places (see ``arithmetic.row_order``), whoever has them. What flows in is a mapped matrix, and
chunk after chunk that a task was given; what flows out are rows.
"""

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.score import Rows
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.reading.matrix import Matrix

__all__ = ["ResidentRows"]


class ResidentRows:
    """Rows by their places, as far as tasks read a ``Matrix``."""

    def __init__(self, matrix: Matrix | None, start: int) -> None:
        """Begin with the instance's own rows, which lie from ``start`` on; None: it has none."""
        self._held = [] if matrix is None else [(start, matrix)]
        self._remote: list[tuple[int, Matrix]] = []

    def load_remote(self, start: int, rows: Matrix | None) -> None:
        """Take in a remote chunk, whose rows lie from ``start`` on; the one before it is dropped. None: no other."""
        # The one before is let go of: held, it would keep its room in the object store.
        self._remote = [] if rows is None else [(start, rows)]

    def holds(self, block: RowBlock) -> bool:
        """Whether these rows can be read."""
        return self._find(block.start, block.stop) is not None

    def some(self, rows: int) -> RowBlock | None:
        """Return where some rows lie that can be read, its own rather than remote ones; None: there are none."""
        for start, matrix in (*self._held, *self._remote):
            return RowBlock(start, start + min(rows, matrix.rows))
        return None

    def read(self, start: int, stop: int) -> Rows:
        """Return rows[stop - start, D].

        Raises:
            InvalidInput: They are not here.
        """
        begin, matrix = self._holding(start, stop)
        return matrix.read(start - begin, stop - begin)

    def read_sparse(self, start: int, stop: int) -> SparseRows:
        """Return the same rows by their elements."""
        begin, matrix = self._holding(start, stop)
        return matrix.read_sparse(start - begin, stop - begin)

    def _find(self, start: int, stop: int) -> tuple[int, Matrix] | None:
        for begin, matrix in (*self._held, *self._remote):
            if begin <= start and stop <= begin + matrix.rows:
                return begin, matrix
        return None

    def _holding(self, start: int, stop: int) -> tuple[int, Matrix]:
        holding = self._find(start, stop)
        if holding is None:
            raise InvalidInput(
                f"the rows at the places {start} to {stop - 1} are not on this instance; its files changed while the "
                "job ran: start it again"
            )
        return holding
