"""``python -m raysm.workloads.similarity.estimating.probe``: measures what a few tiles of a matrix cost, on one core.

What flows in, on stdin, is one JSON object: the files, the workload, and how many rows a block has. What flows out is
the ``Costs`` as one line of JSON. ``estimate`` runs one such process for each core at the same time, as a job would.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from raysm.request.codec import from_json, to_json
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.arithmetic.topk_accumulator import Standing
from raysm.workloads.similarity.modes.full import full_tile
from raysm.workloads.similarity.modes.threshold import threshold_tile
from raysm.workloads.similarity.modes.topk import Deal, topk_tile
from raysm.workloads.similarity.tasks.context import Context, Place, Source
from raysm.workloads.similarity.tasks.engine_cache import Bench, bench_of
from raysm.workloads.similarity.tasks.parts import measured
from raysm.workloads.similarity.tasks.preparing import compares_elements, prepare_block, prepared

__all__ = ["Costs", "Question", "measure"]

LEAST_S = 0.6
"""Each measurement is repeated for so long: all cores are busy meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is to be measured."""

    path: str
    """The matrix."""
    scratch: str
    """Folder for what has to be converted."""
    workload: Similarity
    """What is asked for."""
    rows: int
    """Rows of a block; the matrix has twice as many at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Seconds of one core."""

    engine: str
    """What was computed with."""
    prepare: float
    """Preparing one block's rows."""
    side: float
    """Making one side ready."""
    side_bytes: int
    """Memory of that side; not seconds."""
    diagonal: float
    """A tile of a block with itself, its sides at hand."""
    tile: float
    """A tile of two blocks, its sides at hand, its rows' floors known from the diagonal."""
    merge: float
    """Taking in that tile's part on the head."""


def measure(question: Question) -> Costs:
    """Measure two blocks from the beginning of the matrix."""
    place = Place(Path(question.path), Path(question.scratch), "here")
    source = Source(channel="matrix", id_column=question.workload.id_column, place=place)
    matrix = source.open()
    # The two blocks are the whole matrix here: nobody reads the other rows.
    rows = 2 * question.rows
    nothing = np.empty(0, dtype=np.int16)
    begun = Context(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        dtype=matrix.dtype,
        norms=np.empty(0),
        exponents=nothing,
        sparse=compares_elements(matrix),
    )
    block = RowBlock(0, rows)
    prepare_s = _seconds(lambda: prepare_block(begun, block)) / 2
    part = measured(prepare_block, begun, block)
    known = prepared(replace(begun, rows=rows), [(block, part)])
    context = replace(begun, **known)
    bench = bench_of(context)
    cuts = RowBlock(0, question.rows), RowBlock(question.rows, rows)
    whole, both = TileBlock(cuts[0], cuts[0]), TileBlock(*cuts)
    run = _top_k if question.workload.top_k is not None else _others
    diagonal, tile, merge = run(question, context, whole, both)
    return Costs(
        engine=bench.engine.name,
        prepare=prepare_s,
        side=0.0 if question.workload.full else _side_seconds(bench, cuts[0]),
        side_bytes=bench.held_bytes // 2,
        diagonal=diagonal,
        tile=tile,
        merge=merge,
    )


def _side_seconds(bench: Bench, cut: RowBlock) -> float:
    tile, frame = bench.tile(cut), bench.context.frame()
    return _seconds(lambda: bench.engine.side(tile, frame))


def _top_k(question: Question, context: Context, whole: TileBlock, both: TileBlock) -> tuple[float, float, float]:
    k = min(question.workload.top_k or 1, 2 * question.rows - 1)
    standing = Standing(Path(question.scratch), 2 * question.rows, k)

    def deal(tile: TileBlock) -> Deal:
        floors = standing.floors
        columns = floors[tile.columns.start : tile.columns.stop]
        return Deal(tile, floors[tile.rows.start : tile.rows.stop], columns if tile is both else columns[:0])

    for cut in (both.rows, both.columns):
        part = topk_tile(context, k, deal(TileBlock(cut, cut)))
        standing.merge(cut, part["counts"], part["keys"])
    told, untold = deal(both), Deal(whole, np.full(question.rows, -np.inf, dtype=np.float32), standing.floors[:0])
    diagonal = _seconds(lambda: topk_tile(context, k, untold))
    tile = _seconds(lambda: topk_tile(context, k, told))
    part = topk_tile(context, k, told)

    def merge() -> None:
        standing.merge(both.rows, part["counts"], part["keys"])
        standing.merge(both.columns, part["column_counts"], part["column_keys"])

    merged = _seconds(merge)
    standing.close()
    return diagonal, tile, merged


def _others(question: Question, context: Context, whole: TileBlock, both: TileBlock) -> tuple[float, float, float]:
    workload = question.workload
    function: Callable[[TileBlock], Any]
    if workload.full:
        function = partial(full_tile, context, workload.dtype)
    else:
        assert workload.threshold is not None
        function = partial(threshold_tile, context, least_score(workload.threshold))
    return _seconds(lambda: function(whole)), _seconds(lambda: function(both)), 0.0


def _seconds(function: Callable[[], object]) -> float:
    """Return the median time of a call, after a first one that warms what is kept."""
    function()
    taken: list[float] = []
    until = time.perf_counter() + LEAST_S
    while not taken or time.perf_counter() < until:
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main() -> None:
    """Answer the question on stdin."""
    found = measure(from_json(Question, json.loads(sys.stdin.read()), "question"))
    sys.stdout.write(json.dumps(to_json(found)) + "\n")


if __name__ == "__main__":
    main()
