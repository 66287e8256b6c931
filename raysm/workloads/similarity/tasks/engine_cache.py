"""What a process keeps from one task to the next: its engine, and the operands that it made ready last.

Of two tasks that come one after the other, one side of the tile is mostly the same: making its rows ready again would
cost a tenth of comparing them. ``sizing`` says what all of it takes.
"""

from typing import Any

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseTile
from raysm.workloads.similarity.engines import Engine, Frame, PreparedTile, choose
from raysm.workloads.similarity.tasks.context import Context

__all__ = ["ENGINE_BYTES", "KEPT_BYTES", "EngineCache", "engine_cache_of", "engine_name"]

KEPT_BYTES = 64 << 20
"""Operands are kept up to this; never fewer than the two of one tile."""

ENGINE_BYTES = 104 << 20
"""Most that the engine of NumPy takes: a product and its mask, and of one float64 part about ten arrays of 8 MiB."""

SAMPLE_ROWS = 512
"""Rows that the engine is chosen by."""


class EngineCache:
    """The engine of this process, and the operands that it holds."""

    def __init__(self, context: Context) -> None:
        """Choose the engine by some rows of the context."""
        self.context = context
        self._frame: Frame = context.frame()
        self.engine: Engine[Any] = choose(context.sample(SAMPLE_ROWS), self._frame, context.engine)
        self._operands: dict[tuple[bool, RowBlock], PreparedTile[Any]] = {}

    def tile(self, cut: RowBlock, *, queries: bool = False) -> Tile | SparseTile:
        """Read rows of the matrix, or of the one whose rows look for neighbors."""
        rows = self.context.queries if queries else self.context.matrix
        return rows.tile(cut.start, cut.stop)

    def operand(self, cut: RowBlock, *, queries: bool = False) -> PreparedTile[Any]:
        """Return those rows, ready for products: the ones that were made last need not be made again."""
        key = queries and not self.context.self_join, cut
        operand = self._operands.pop(key, None)
        if operand is None:
            tile = self.tile(cut, queries=queries)
            self._make_room(tile)
            operand = self.engine.prepare(tile, self._frame)
        # Put back last: what was used longest ago is the first to go.
        self._operands[key] = operand
        return operand

    def _make_room(self, tile: Tile | SparseTile) -> None:
        """Drop the oldest operands before there is one more; the latest stays, because it is of the same tile."""
        most = max((operand.nbytes / len(operand) for operand in self._operands.values()), default=0.0)
        while len(self._operands) > 1 and self.held_bytes + len(tile) * most + _copied_bytes(tile) > KEPT_BYTES:
            del self._operands[next(iter(self._operands))]

    @property
    def held_bytes(self) -> int:
        """Memory of all operands that are held now."""
        return sum(operand.nbytes + _copied_bytes(operand.tile) for operand in self._operands.values())

    def drop_what_left(self) -> None:
        """Drop operands whose rows cannot be read here any more: they would keep a remote chunk in memory."""
        resident = {True: self.context.queries.open(), False: self.context.matrix.open()}
        self._operands = {key: operand for key, operand in self._operands.items() if resident[key[0]].holds(key[1])}


def _copied_bytes(tile: Tile | SparseTile) -> int:
    # Rows that own their memory are a copy; the others are views of the mapped file.
    return tile.rows.nbytes if isinstance(tile, SparseTile) or tile.rows.base is None else 0


_caches: dict[str, EngineCache] = {}
"""The one of this process, by its context's token."""


def engine_cache_of(context: Context) -> EngineCache:
    """Return this process's cache for the context: the one of its last task, or a new one instead."""
    if context.token not in _caches:
        # Nothing of another context is used again: it would only take memory.
        _caches.clear()
        _caches[context.token] = EngineCache(context)
    return _caches[context.token]


def engine_name(context: Context) -> str:
    """Return the name of the engine that computed for the context in this process; empty where none did."""
    cache = _caches.get(context.token)
    return "" if cache is None else cache.engine.name
