"""Top-k on the head: keys are merged as they come, and written by the rows' numbers."""

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.workloads.blocks import RowBlock
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.similarity.arithmetic.row_order import RowOrder
from raysm.workloads.similarity.arithmetic.row_order import Run as Consecutive
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors
from tests.support.similarity import run_of, saved

KINDS = kinds_of_rows(rows=90)
SIZING = SimpleNamespace(max_tile_rows=lambda: 90)


def gathered(run, order, tasks):
    """Do the tasks in this order on the head; return the columns of the file."""
    mode = TopK(5)
    tiles = SimpleNamespace(tasks=tasks, row_order=order, in_strips=False)
    collector = mode.collect(run, tiles, mode.record(run, "topk"), SIZING)
    try:
        for task in tasks:
            told = FreeTile(task.tile, True, collector.hint(task))
            assert collector.take(task, Part(arrays=mode.compare(run.context, told), peaks={}, seconds=0.0)) == ()
        (file,) = collector.gather(ProgressThrottle("gather", 90, "rows", lambda event: None))
    finally:
        collector.close()
    table = pq.read_table(run.folders.result / file.name)
    return [np.stack(table[name].to_numpy()) for name in ("neighbors", "similarities")]


@pytest.mark.parametrize("kind", ["float32", "zero rows", "duplicates", "all zero"])
@pytest.mark.parametrize("side", [25, 90])
def test_the_file_has_the_neighbors_of_float64_whatever_order_the_tiles_come_in(kind, side, tmp_path):
    tasks = [FreeTile(tile, True) for tile in triangle(90, side)]
    found, scores = gathered(run_of(KINDS[kind], tmp_path, top_k=5), RowOrder.identity(90), tasks[::-1])
    expected = neighbors(KINDS[kind], 5)
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


def test_rows_are_written_by_their_numbers_where_their_places_are_others(tmp_path):
    # Places 0 to 49 hold the rows 40 to 89, places 50 to 89 the rows 0 to 39.
    order = RowOrder.of([Consecutive(40, 0, 50), Consecutive(0, 50, 40)])
    run = run_of(KINDS["float32"], tmp_path, top_k=5)
    tasks = [FreeTile(tile, True) for tile in triangle(90, 45)]
    found, _ = gathered(run, order, tasks)
    by_place, _ = neighbors(KINDS["float32"], 5)
    # The keys hold what the task calls the columns: here their places.
    np.testing.assert_array_equal(found, np.concatenate([by_place[50:], by_place[:50]]))


def test_a_task_is_told_what_its_rows_reach_already(tmp_path):
    run, mode = run_of(KINDS["float32"], tmp_path, top_k=5), TopK(5)
    diagonal = FreeTile(next(triangle(90, 90)), True)
    tiles = SimpleNamespace(tasks=[diagonal], row_order=RowOrder.identity(90), in_strips=False)
    collector = mode.collect(run, tiles, mode.record(run, "topk"), SIZING)
    before = collector.hint(diagonal)
    assert (before.row_bounds == -np.inf).all()
    arrays = mode.compare(run.context, FreeTile(diagonal.tile, True, before))
    collector.take(diagonal, Part(arrays=arrays, peaks={}, seconds=0.0))
    after = collector.hint(diagonal)
    np.testing.assert_array_equal(after.row_bounds, neighbors(KINDS["float32"], 5)[1][:, -1])
    # A copy: what was told before is what a task that is still to start reads.
    assert (before.row_bounds == -np.inf).all()
    collector.close()


def test_a_part_has_at_most_its_bytes():
    for k in (1, 10, 1000, 10**7):
        rows = TopK(k).limits.rows
        assert rows == 1 or rows * 16 * k <= 64 << 20
    assert TopK(10).limits.joined_row_s < TopK(100).limits.joined_row_s


def test_the_last_phase_is_measured_by_writing_some_of_it(tmp_path):
    matrix = saved(KINDS["float32"], tmp_path).open()
    (tmp_path / "scratch").mkdir(exist_ok=True)
    assert TopK(5).gathering_seconds(matrix, tmp_path / "scratch", sizing=None) > 0
    assert pq.read_metadata(tmp_path / "scratch" / "neighbors.parquet").num_rows == 90


def test_a_tile_beside_the_diagonal_is_probed_with_what_the_diagonal_found(tmp_path):
    run = run_of(KINDS["float32"], tmp_path, top_k=5)
    measured = []

    def seconds(call):
        call()
        measured.append(call)
        return float(len(measured))

    both = next(tile for tile in triangle(90, 45) if tile.rows != tile.columns)
    assert TopK(5).probe(run.context, both, tmp_path / "scratch", seconds) == (1.0, 2.0, 3.0)
    assert both.rows == RowBlock(0, 45)
