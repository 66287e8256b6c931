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

from raysm.request.codec import from_json, to_json
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.modes import mode_of
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.tasks.context import Context, RowShape, Whole
from raysm.workloads.similarity.tasks.engine_cache import EngineCache, engine_cache_of
from raysm.workloads.similarity.tasks.parts import prepared_part
from raysm.workloads.similarity.tasks.preparing import compares_elements, prepare_block, prepared

__all__ = ["LEAST_S", "Costs", "Question", "measure"]

LEAST_S = 0.6
"""So long all cores are busy with the same, and the median of what was measured is no accident."""


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
    least_s: float = LEAST_S
    """For how long each of the five measurements is repeated at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Seconds of one core."""

    engine: str
    """What was computed with."""
    prepare: float
    """Preparing one block's rows."""
    operand: float
    """Making one operand ready."""
    operand_bytes: int
    """Memory of that operand; not seconds."""
    diagonal: float
    """A tile of a block with itself, its operands at hand."""
    tile: float
    """A tile of two blocks, its operands at hand, its rows' lower bounds known from the diagonal."""
    merge: float
    """Taking in that tile's part on the head."""


def measure(question: Question) -> Costs:
    """Measure two blocks from the beginning of the matrix."""
    place = Place(Path(question.path), Path(question.scratch), "here")
    source = Source(channel="matrix", selection=Selection.of(question.workload), place=place)
    matrix = source.open()
    shape = RowShape(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        dtype=matrix.dtype,
        placement=Whole(matrix.rows, matrix.columns),
        sparse=compares_elements(matrix),
    )
    # The two blocks are the whole matrix here: nobody reads the other rows.
    block = RowBlock(0, 2 * question.rows)
    # Of both blocks at once, as a task of a job prepares many: a cost is that of one.
    seconds = partial(_seconds, least_s=question.least_s)
    prepare_s = seconds(lambda: prepare_block(shape, block)) / 2
    part = prepared_part(prepare_block, shape, block)
    # The placement is still that of the whole file, which it is compared with when the file is opened.
    context = Context(matrix=prepared(replace(shape, rows=block.rows), [(block, part)]))
    cache = engine_cache_of(context)
    both = TileBlock(RowBlock(0, question.rows), RowBlock(question.rows, block.rows))
    mode = mode_of(question.workload)
    diagonal, tile, merge = mode.probe(context, both, Path(question.scratch), seconds)
    return Costs(
        engine=cache.engine.name,
        prepare=prepare_s,
        # Of strips the engine computes scores from the rows as they are read: nothing is made ready.
        operand=0.0 if mode.in_strips else _operand_seconds(cache, both.rows, seconds),
        # What is held is of both blocks, in one piece each or in several.
        operand_bytes=cache.held_bytes // 2,
        diagonal=diagonal,
        tile=tile,
        merge=merge,
    )


def _operand_seconds(cache: EngineCache, cut: RowBlock, seconds: Callable[[Callable[[], object]], float]) -> float:
    tile, frame = cache.tile(cut), cache.context.frame()
    # Past the cache, which would make it once and hand it back ever after.
    return seconds(lambda: cache.engine.prepare(tile, frame))


def _seconds(function: Callable[[], object], *, least_s: float) -> float:
    """Return the median time of a call, after a first one that warms what is kept."""
    function()
    seconds: list[float] = []
    until = time.perf_counter() + least_s
    while not seconds or time.perf_counter() < until:
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def main() -> None:
    """Answer the question on stdin."""
    costs = measure(from_json(Question, json.loads(sys.stdin.read()), "question"))
    sys.stdout.write(json.dumps(to_json(costs)) + "\n")


if __name__ == "__main__":
    main()
