"""What a process keeps from one task to the next: its engine, and the sides that it made ready last.

**Memory of a task** of n rows and m columns of a tile, of D elements each, beside the interpreter and its libraries:

    the mapped rows that it reads                                (n + m) D itemsize, and only while there is room
  + the sides of this tile, or of the latest ones                max(both, KEPT_BYTES)
      of which one takes, for n rows, at most                    n D 8 + n D itemsize (if the rows cannot be mapped)
  + the best of its rows and columns, and what is handed back    (n + m) (3 * 8 k + 8)
  + what the engine takes for products                           ENGINE_BYTES, and nothing if it is compiled

A side is at most ``SIDE_BYTES``, which bounds n and m, and a result at most ``PART_BYTES``, whatever N is. Where many
tasks run at once, one of top-k does several tiles: its result alone bounds n and m then, its sides are as large as
before, and as many are kept as fit into ``KEPT_BYTES``. Top-k holds no pair that is not among the best so far; a
threshold holds at most twice ``PART_BYTES`` of pairs. Where a GPU compares, a side is the mapped rows alone, at most
``GPU_SIDE_BYTES``; ``engines/cuda`` says what the GPU holds.
"""

from collections.abc import Callable

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.engines import Engine, Frame, Side, choose
from raysm.workloads.similarity.tasks.context import Context

__all__ = ["Bench", "bench_of", "engine_name", "most_rows", "most_sparse_rows"]

SIDE_BYTES = 64 << 20
"""Largest side of a tile, with the copy of its rows that a matrix that cannot be mapped needs."""

KEPT_BYTES = 64 << 20
"""Sides are kept up to this; never fewer than the two of one tile."""

PART_BYTES = 32 << 20
"""Largest result of one task."""

ENGINE_BYTES = 104 << 20
"""Most that the engine of NumPy takes: a product and its mask, and of one float64 part about ten arrays of 8 MiB."""

GPU_SIDE_BYTES = 1 << 30
"""Largest side of a tile that a GPU compares: its rows, mapped on the host, which travel to the GPU in panels."""

SAMPLE_ROWS = 512
"""Rows that the engine is chosen by."""


def most_rows(columns: int, itemsize: int, *, gpu: bool = False) -> int:
    """Return the most rows of one side, of a matrix with that many columns of elements of ``itemsize`` bytes."""
    if gpu:
        return max(1, GPU_SIDE_BYTES // (columns * itemsize))
    return max(1, SIDE_BYTES // (columns * (8 + itemsize)))


def most_sparse_rows(elements: float) -> int:
    """Return the most rows of one side, of a matrix with that many elements a row: 36 bytes each, 40 a row."""
    return max(1, int(SIDE_BYTES / (36 * elements + 40)))


class Bench:
    """The engine of this process, and the sides that it holds."""

    def __init__(self, context: Context) -> None:
        """Choose the engine by the context's own rows."""
        self.context = context
        self._frame: Frame = context.frame()
        self.engine: Engine = choose(context.sample(SAMPLE_ROWS), self._frame, context.engine)
        self._sides: dict[tuple[bool, RowBlock], Side] = {}

    def tile(self, cut: RowBlock, *, seekers: bool = False) -> Tile:
        """Read rows of the matrix, or of the one whose rows look for neighbors."""
        context = self.context.seekers if seekers else self.context
        return context.tile(context.open(), cut.start, cut.stop)

    def side(self, cut: RowBlock, *, seekers: bool = False) -> Side:
        """Return those rows, ready for products: the ones that were made last need not be made again."""
        key = seekers and not self.context.same, cut
        side = self._sides.pop(key, None)
        if side is None:
            tile = self.tile(cut, seekers=seekers)
            self._make_room(tile)
            side = self.engine.side(tile, self._frame)
        self._sides[key] = side
        return side

    def _make_room(self, tile: Tile) -> None:
        """Let go of the oldest sides before there is one more; the latest stays, which is of the same tile."""
        most = max((side.nbytes / len(side) for side in self._sides.values()), default=0.0)
        while len(self._sides) > 1 and self.held_bytes + len(tile) * most + _copied_bytes(tile) > KEPT_BYTES:
            del self._sides[next(iter(self._sides))]

    @property
    def held_bytes(self) -> int:
        """Memory of all sides that are held now."""
        return sum(side.nbytes + _copied_bytes(side.tile) for side in self._sides.values())

    def keep(self, wanted: Callable[[RowBlock], bool]) -> None:
        """Let go of the sides of all other rows."""
        self._sides = {key: side for key, side in self._sides.items() if wanted(key[1])}


def _copied_bytes(tile: Tile) -> int:
    # Rows that own their memory are a copy; the others are views of the mapped file.
    return tile.rows.nbytes if isinstance(tile.rows, SparseRows) or tile.rows.base is None else 0


_benches: dict[str, Bench] = {}
"""The one of this process, by its context's token."""


def bench_of(context: Context) -> Bench:
    """Return this process's bench for the context: the one of its last task, or a new one instead."""
    if context.token not in _benches:
        _benches.clear()
        _benches[context.token] = Bench(context)
    return _benches[context.token]


def engine_name(context: Context) -> str:
    """Return the name of the engine that computed for the context in this process; empty where none did."""
    bench = _benches.get(context.token)
    return "" if bench is None else bench.engine.name
