"""What one task does with a pair of chunks: what is done with any tile, with the remote chunk's rows at hand.

What flows in are the rows that came, what flows out is what the mode makes of a tile, in which rows have their numbers
in the matrix: whoever gathers it need not know where a row lies.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import BlockPair
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk
from raysm.workloads.similarity.reading.matrix import Matrix
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import engine_cache_of
from raysm.workloads.similarity.tasks.parts import Part, measured

__all__ = ["compare_pair", "portion"]


def compare_pair(
    function: Callable[[Context, Any], Mapping[str, NDArray[Any]]],
    context: Context,
    pair: BlockPair,
    rows: Matrix | None = None,
) -> Part:
    """Run ``function(context, pair)`` with the remote chunk's rows at hand, and say what it took."""
    remote, comes_left = pair.remote, pair.remote is not None and pair.remote is pair.left
    for operand, left in ((context.matrix, False), (context.queries, True)):
        # Of a self-join both are the same rows, and whichever chunk came is one of them.
        comes = remote is not None and (context.self_join or left == comes_left)
        operand.open().load_remote(0 if remote is None else remote.range.start, rows if comes else None)
    # Operands of the chunk before this one would keep its rows in the object store.
    engine_cache_of(context).drop_what_left()
    return measured(function, context, pair)


def portion(source: Source, chunk: RowChunk, dtype: np.dtype[Any]) -> Matrix:
    """Return a chunk's rows on the instance that has them; what is pickled of it are these rows alone.

    Raises:
        InvalidInput: They are not there any more.
    """
    own = source.open()
    if own.rows < chunk.stop:
        raise InvalidInput(f"{chunk.host} has {own.rows} rows, and had more: its files changed while the job ran")
    return own.portion(chunk.start, chunk.stop, dtype)
