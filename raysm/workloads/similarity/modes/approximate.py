"""Top-k where a recall is asked for: rows look for their neighbors in the nearest cells of an inverted file alone.

What flows in are strips of rows in the order of their cells, so that those of one task look into the same ones; what
flows out is the same file as that of top-k, and what it misses, measured on other rows than those by which it was
chosen how many cells are looked into. A task has all of its rows' neighbors: nothing is merged on the head.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.errors import InvalidInput
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks, row_blocks
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.arithmetic.topk_accumulator import zero_row_keys
from raysm.workloads.similarity.cells.building import build
from raysm.workloads.similarity.cells.index import Index
from raysm.workloads.similarity.cells.promise import check_kept, measured_recall
from raysm.workloads.similarity.cells.search import search
from raysm.workloads.similarity.modes.mode import Collector, Tiling
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.reading.matrix import Described
from raysm.workloads.similarity.runs import Report, Run
from raysm.workloads.similarity.sizing.footprint import PART_BYTES
from raysm.workloads.similarity.sizing.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part, measured
from raysm.workloads.similarity.tasks.tile_task import FreeTile, TileTask

__all__ = ["ApproximateTopK"]

INDEX = "the index"
"""What the index is recorded as, among the blocks: another run of the job goes on with the same cells."""


@dataclass(frozen=True, slots=True)
class ApproximateTopK(TopK):
    """About the k most similar rows of each."""

    name: ClassVar[str] = "approximate"
    without_gpus: ClassVar[str] = "the cells of an inverted file are too small for them"
    without_estimate: ClassVar[str] = "how many rows a recall leaves out shows only in all of them; drop the recall"
    in_strips: ClassVar[bool] = True

    recall: float
    """What share of them has to be the true ones, in the mean."""
    index: Index | None = None
    """None until the rows are prepared."""

    @classmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if a recall is asked for."""
        if workload.top_k is None or workload.recall is None:
            return None
        return cls(workload.top_k, workload.recall)

    @property
    def limits(self) -> PartLimits:
        """Each row's neighbors come from one task: no parts are joined, and nobody has to own what is merged."""
        return PartLimits(rows=max(1, PART_BYTES // (16 * self.k)))

    def check(self, queries: Described, matrix: Described) -> None:
        """Raise ``InvalidInput`` where there are not so many neighbors, or rows are sparse."""
        TopK.check(self, queries, matrix)
        # Nor would cells help: rows that share no column are left out already, whatever their cosine.
        if queries.sparse or matrix.sparse:
            raise InvalidInput(
                "sparse rows are compared by the columns that they share, all of them: drop recall, or give them "
                "as dense rows"
            )

    def ready(self, run: Run, report: Report, slots: int) -> "ApproximateTopK":
        """Return the mode with its index, which an earlier run of the job may have left.

        Raises:
            InvalidInput: Fewer pairs than the exact search computes do not keep the promise.
        """
        record = self.record(run, self.name)

        def do(function: Any, blocks: list[Any]) -> Any:
            for block, part in map_blocks(partial(measured, function, run.context), blocks):
                report.add(part)
                yield block, part

        # Measured on its own: it is done once, however many neighbors are looked for.
        with report.phase("index"):
            if INDEX in record:
                index = Index.from_arrays(record.load(INDEX).arrays)
            else:
                index = build(run.context, self.k, self.recall, slots, do)
                record.save(INDEX, Part(arrays=index.arrays(), peaks={}, seconds=0.0))
        return replace(self, index=index)

    def tiles(self, sizing: Sizing, record: BlockRecord[Any], *, self_join: bool) -> list[FreeTile]:
        """Return strips of places in the index, each with all rows that they may look into."""
        # As long as a part may be: the longer a strip, the more of its rows look into the same cell.
        rows = sizing.strip_rows(record, 8 * self.k)
        columns = RowBlock(0, sizing.matrix.rows)
        return [FreeTile(TileBlock(cut, columns), self_join=False) for cut in row_blocks(sizing.queries.rows, rows)]

    def groups(self, run: Run, tiles: Sequence[FreeTile], record: BlockRecord[Any], sizing: Sizing) -> None:
        """Return nothing: there is nothing to merge."""
        return None

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Return ``keys[rows, k]`` of the rows at the task's places."""
        return {"keys": search(context, self._index, self.k, task.tile.rows)}

    def collect(self, run: Run, tiles: Tiling, record: BlockRecord[Any], sizing: Sizing) -> Collector:
        """Begin with nobody known of any row."""
        return _Collector(self, run, record)

    @property
    def _index(self) -> Index:
        assert self.index is not None, "nobody has called ready"
        return self.index


class _Collector(Collector):
    """The neighbors of each row, by its number."""

    def __init__(self, mode: ApproximateTopK, run: Run, record: BlockRecord[Part]) -> None:
        self._run, self._mode, self._index = run, mode, mode._index
        self.recorded = record
        self._file = _keys_file(run.scratch / "approximate", run.queries.rows, mode.k)

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Put a part's keys to where its rows stand in the result."""
        rows = task.tile.rows
        self._file[self._index.queries.numbers[rows.start : rows.stop]] = part.arrays["keys"]
        return ()

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...]:
        """Write ``neighbors.parquet``, if it holds what was promised."""
        run, k = self._run, self._mode.k
        # Before anything is written: a result that holds less than was promised is none.
        self._measured = self._measure()
        check_kept(self._mode.recall, self._measured)
        return (output.write_neighbors(run.folders.result, self._keys, k, run.queries.rows, throttle.add, run.ids()),)

    def _keys(self, start: int, stop: int) -> NDArray[np.uint64]:
        context, keys = self._run.context, np.array(self._file[start:stop])
        # No task looks for neighbors of a zero row: they follow from its number.
        zero = np.flatnonzero(context.queries.norms[start:stop] == 0)
        keys[zero] = zero_row_keys(zero + start, self._mode.k, same=context.self_join)
        return keys

    def _measure(self) -> Any:
        scores = decode(np.array(self._file[self._index.sample]))[0]
        # By the score: of several that tie for the last place, any is as good as the one that the order has first.
        return measured_recall((scores >= self._index.truth[:, None]).mean(axis=1))

    def tell(self, report: Report) -> None:
        """Note the recall, and what was left out."""
        index, reached = self._index, self._measured
        report.measures |= {
            "recall": reached.recall,
            "recall_low": reached.low,
            "recall_high": reached.high,
            "recall_rows": float(reached.rows),
            "cells": float(len(index.centroids)),
            "cells_looked_into": float(index.probes),
            "pairs_share": index.share,
        }
        report.notes.append(
            f"approximate, as asked: the recall is {reached}, measured against the exact search; each row looked into "
            f"{index.probes} of {len(index.centroids)} cells, {index.share:.1%} of all pairs"
        )

    def close(self) -> None:
        """Let go of the file, which is gone then."""
        del self._file


def _keys_file(path: Path, rows: int, k: int) -> NDArray[np.uint64]:
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = np.memmap(path, dtype=np.uint64, mode="w+", shape=(rows, k))
    # Mapped, it needs no name: nothing is left of it, however the process ends.
    path.unlink()
    return keys
