"""How the inverted file is made: centroids on the head, then each row's cell, and the truth of a sample, share-nothing.

What flows in is a context whose rows are prepared; what flows out is an ``Index``, with as many probes as the recall
takes. The tasks read the rows of their block once, for both: the block's cells, and the neighbors that the sampled rows
have in it, by the exact engine.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock, row_blocks
from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, INDEX_BITS, decode
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows
from raysm.workloads.similarity.cells.centroids import SAMPLE_A_CELL, Comparer, cell_count, tile_of, train
from raysm.workloads.similarity.cells.index import Cells, Index
from raysm.workloads.similarity.cells.promise import choose_probes, sample_size
from raysm.workloads.similarity.engines import Best, Frame
from raysm.workloads.similarity.tasks.context import Context, Operand, tile_rows
from raysm.workloads.similarity.tasks.engine_cache import engine_cache_of
from raysm.workloads.similarity.tasks.parts import Part

__all__ = ["Asked", "assign", "build", "comparer_of", "without_own"]

TRAINED_BYTES = 128 << 20
"""Rows that centroids are trained on, as float32; the head holds them twice."""

RANKED = 256
"""Sampled rows whose cells are put in order at a time: each has a number for every cell."""

Do = Callable[[Callable[[Context, Any], dict[str, NDArray[Any]]], list[Any]], Iterable[tuple[Any, Part]]]
"""Calls a function with the context and each block, somewhere."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Asked:
    """What a block's rows are asked: their cells, and whether they are among the best of some."""

    centroids: Rows
    """centroids[cells, D]."""
    sample: NDArray[np.int64]
    """Numbers of queries."""
    k: int
    """How many of the best each of them keeps."""


def comparer_of(context: Context) -> Comparer:
    """Return the engine of this process, in a frame that centroids may stand in."""
    frame, cache = context.frame(), engine_cache_of(context)
    # Not the cache's own frame: it may say that all are integers, which no mean is.
    return Comparer(cache.engine, Frame(centre=frame.centre), tile_rows(context.matrix.columns))


def assign(task: Asked, context: Context, block: tuple[bool, RowBlock]) -> dict[str, NDArray[Any]]:
    """Return ``cells[rows]`` of a block and, of the matrix's rows, ``keys[sample, k]``: whom the sample finds there.

    Args:
        task: What is wanted.
        context: What every task is told.
        block: Whether it is one of the queries, and its rows.
    """
    of_queries, rows = block
    comparer = comparer_of(context)
    operand = context.queries if of_queries else context.matrix
    tile = operand.tile(rows.start, rows.stop)
    assert isinstance(tile, Tile), "sparse rows were refused"
    ready = comparer.ready(tile)
    cells = comparer.nearest(ready, task.centroids, 1)[:, 0].astype(np.int32)
    if of_queries:
        return {"cells": cells}
    sample = context.queries.gather(task.sample)
    best = Best.empty(sample.norms, task.k)
    for start in range(0, len(sample), comparer.step):
        some = slice(start, start + comparer.step)
        left = comparer.ready(sample.part(start, start + comparer.step))
        comparer.engine.topk(left, ready, Best(best.keys[some], best.lower_bounds[some]), None, same=False)
    return {"cells": cells, "keys": best.keys}


def build(context: Context, k: int, recall: float, slots: int, do: Do) -> Index:
    """Make the inverted file.

    Args:
        context: Rows that lie whole on every instance.
        k: Neighbors of each row.
        recall: How many of them have to be the true ones, in the mean.
        slots: Tasks that the cluster runs at once.
        do: Has tasks done.

    Raises:
        InvalidInput: No fewer pairs would do, or the rows are too few to say.
    """
    rng = np.random.default_rng(0)
    k_of_sample = k + context.self_join
    rows = np.flatnonzero(context.queries.norms)
    # Zero rows have no neighbors that could be missed.
    size = sample_size(recall, len(rows))
    if not size:
        raise InvalidInput(f"of {len(rows)} rows with elements no recall can be measured; drop recall")
    sample = rng.permutation(rows)[: 2 * size]
    # The first half chooses the number of cells, and so cannot say what it misses; the second one can.
    task = Asked(centroids=_trained(context, rng), sample=sample, k=k_of_sample)
    cells, keys = _assigned(context, task, slots, do)
    # A cell that nobody is in would only be looked into for nothing.
    used = np.flatnonzero(np.bincount(cells[False], minlength=len(task.centroids)))
    centroids = task.centroids[used]
    matrix = Cells.of(np.searchsorted(used, cells[False]), len(used))
    # Queries are only put in order by their cells; of one that is not used, by the next that is.
    queries = matrix if context.self_join else Cells.of(np.searchsorted(used, cells[True]), len(used))
    truth = without_own(keys, sample if context.self_join else None)
    ranks, shares = _ranks(context, centroids, matrix, sample, truth)
    probes = choose_probes(recall, ranks[:size], ranks[size:], shares)
    return Index(
        centroids=centroids,
        matrix=matrix,
        queries=queries,
        probes=probes,
        share=float(shares[probes - 1]),
        sample=sample[size:],
        truth=decode(truth[size:, -1])[0],
    )


def _trained(context: Context, rng: np.random.Generator) -> Rows:
    matrix = context.matrix
    enough = SAMPLE_A_CELL * cell_count(matrix.rows, matrix.rows)
    count = max(1, min(matrix.rows, enough, TRAINED_BYTES // (4 * matrix.columns)))
    # Drawn without order: the first rows of a file are often alike.
    sample = matrix.gather(rng.choice(matrix.rows, count, replace=False))
    return train(sample, cell_count(matrix.rows, count), comparer_of(context))


def _assigned(
    context: Context, task: Asked, slots: int, do: Do
) -> tuple[dict[bool, NDArray[np.int32]], NDArray[np.uint64]]:
    """Return the cell of every row, of the matrix and of other queries, and keys[sample, k] of the whole matrix."""
    step = tile_rows(context.matrix.columns)
    operands: dict[bool, Operand] = {False: context.matrix}
    if not context.self_join:
        operands[True] = context.queries
    cells = {which: np.empty(operand.rows, dtype=np.int32) for which, operand in operands.items()}
    blocks = [
        (which, block)
        for which, operand in operands.items()
        for block in row_blocks(operand.rows, max(1, min(step, -(-operand.rows // slots))))
    ]
    # Keys of one sample in all blocks: sorted, they are what the exact search finds, in any order of the blocks.
    best = np.full((len(task.sample), task.k), EMPTY_KEY)
    for (which, block), part in do(partial(assign, task), blocks):
        cells[which][block.start : block.stop] = part.arrays["cells"]
        if "keys" in part.arrays:
            best = np.sort(np.concatenate([best, part.arrays["keys"]], axis=1), axis=1)[:, : task.k]
    return cells, best


def without_own(keys: NDArray[np.uint64], numbers: NDArray[np.int64] | None) -> NDArray[np.uint64]:
    """Return keys[n, k - 1] without each row's own index, of keys[n, k]; with no rows of their own, as they are.

    A row that is not among its own k best (those equal to it come first, by a lower index) has one too many of them.
    """
    if numbers is None:
        return keys
    others = (keys & INDEX_BITS) != numbers.astype(np.uint64)[:, None]
    others[others.all(axis=1), -1] = False
    left: NDArray[np.uint64] = keys[others].reshape(len(keys), keys.shape[1] - 1)
    return left


def _ranks(
    context: Context, centroids: Rows, matrix: Cells, sample: NDArray[np.int64], truth: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return ranks[sample, k] of the true neighbors' cells, and shares[cells], see ``choose_probes``."""
    cell_of = np.empty(len(matrix.numbers), dtype=np.int64)
    cell_of[matrix.numbers] = np.repeat(np.arange(len(centroids)), matrix.sizes)
    true_cells = cell_of[(truth & INDEX_BITS).astype(np.int64)]
    tile, ranks, pairs = tile_of(centroids), np.empty(truth.shape, dtype=np.int64), np.zeros(len(centroids))
    engine = engine_cache_of(context).engine
    for start in range(0, len(sample), RANKED):
        rows = context.queries.gather(sample[start : start + RANKED])
        scores = np.empty((len(rows), len(centroids)), dtype=np.float32)
        engine.scores(rows, tile, scores)
        # Stable: of equal scores the lower cell comes first, as the keys of the engine have them.
        order = np.argsort(-scores, axis=1, kind="stable")
        places = np.empty_like(order)
        np.put_along_axis(places, order, np.broadcast_to(np.arange(len(centroids)), order.shape), axis=1)
        ranks[start : start + RANKED] = np.take_along_axis(places, true_cells[start : start + RANKED], axis=1)
        pairs += matrix.sizes[order].sum(axis=0)
    return ranks, np.cumsum(pairs) / (len(sample) * len(matrix.numbers))
