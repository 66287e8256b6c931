"""Where the rows of both channels lie, how all pairs are cut into tasks, and how their parts come in."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from raysm.contract.events import Progress
from raysm.errors import BlockFailed
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.layouts.layout import Layout, TileQueue, chunk_limits, compare
from raysm.workloads.similarity.layouts.whole_rows import WholeRows
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.runs import Report
from raysm.workloads.similarity.sizing import DENSE, Sizing
from raysm.workloads.similarity.tasks.parts import FreeTile, Part, decode_part, encode_part
from tests.support.similarity import saved


@pytest.fixture
def loaded(tmp_path):
    def load(rows, name):
        if isinstance(rows, np.ndarray):
            source = replace(saved(rows, tmp_path / name), channel=name)
        else:
            path = tmp_path / f"{name}.npz"
            scipy.sparse.save_npz(path, rows)
            source = Source(channel=name, place=Place(path, tmp_path / "scratch", "algo-1"))
        return WholeRows(source, source.open())

    return load


def test_of_a_matrix_alone_its_own_rows_look_for_neighbors(loaded):
    layout = Layout(loaded(np.eye(3, dtype=np.float32), "matrix"))
    assert layout.self_join
    assert layout.queries is layout.matrix
    assert len(layout.operands) == 1


@pytest.mark.parametrize(
    ("queries", "matrix", "common"),
    [("float32", "float64", "float64"), ("int8", "uint8", "int16"), ("int64", "uint64", "float64")],
)
def test_both_are_read_as_one_type_that_holds_the_numbers_of_both(loaded, queries, matrix, common):
    layout = Layout(loaded(np.eye(3, dtype=matrix), "matrix"), loaded(np.eye(2, 3, dtype=queries), "queries"))
    assert (layout.matrix.dtype, layout.queries.dtype) == (common, common)
    assert (layout.matrix.rows, layout.queries.rows, layout.self_join) == (3, 2, False)


def test_elements_are_compared_only_where_both_are_sparse(loaded):
    sparse = scipy.sparse.random(3000, 5000, 0.0005, format="csr", random_state=1)
    rows = loaded(sparse, "matrix")
    assert Layout(rows).compares_elements()
    assert Layout(rows, loaded(sparse[:9], "sparse")).compares_elements()
    assert not Layout(rows, loaded(np.ones((2, 5000)), "dense")).compares_elements()


def limits_of(rows, instances, slots, store_bytes, block_rows=None, columns=768):
    """Return chunk rows and window of rows that lie alike on so many instances."""
    described = SimpleNamespace(rows=rows, columns=columns, dtype=np.dtype(np.float32), elements=rows * columns)
    sharded = SimpleNamespace(
        largest_share=rows // instances,
        row_bytes=4.0 * columns,
        store_bytes=store_bytes,
        slots={f"algo-{at}": slots for at in range(instances)},
        described=described,
    )
    layout = SimpleNamespace(operands=[sharded], slots=sharded.slots, matrix=described)
    sizing = Sizing(
        limits=TopK(10).limits,
        footprint=DENSE,
        queries=described,
        matrix=described,
        self_join=True,
        slots=slots * instances,
        instances=instances,
        block_rows=block_rows,
    )
    return chunk_limits(layout, sizing)


@pytest.mark.parametrize("slots", [2, 8, 96])
@pytest.mark.parametrize("store_bytes", [80e6, 5e9, 60e9])
@pytest.mark.parametrize("block_rows", [None, 500])
def test_the_chunks_that_are_there_at_a_time_take_half_of_the_smallest_store(slots, store_bytes, block_rows):
    (rows, columns), window = limits_of(10**6, 8, slots, store_bytes, block_rows)
    assert rows == columns >= 1
    assert window >= 2
    if window > 2:
        assert 3 * window * rows * 4 * 768 <= store_bytes / 2 * 1.01


def test_few_rows_are_cut_for_all_slots_to_be_busy():
    (rows, _), _ = limits_of(40_000, 4, 4, 5e9)
    chunks = 40_000 / rows
    assert chunks**2 / 2 >= 8 * 16


ROWS = 100
BLOCKS = [RowBlock(start, start + 50) for start in (0, 50)]
TASKS = [
    FreeTile(TileBlock(above, beside), True) for above in BLOCKS for beside in BLOCKS if above.start <= beside.start
]


def part_of(task):
    if task.tile.columns.rows == 50 and task.mirrored:
        return Part(arrays={}, peaks={"algo-1": 7}, seconds=0.5, engines=("given up",))
    return Part(arrays={}, peaks={"algo-1": 5}, seconds=0.25, engines=("an engine",))


def fail(task):
    raise KeyError(str(task))


class Kept:
    """Keeps the names of what it took; a tile of two blocks is given up for two halves."""

    comparing = None

    def __init__(self, recorded=None):
        self.taken, self.recorded = [], recorded

    def informed(self, task):
        return task

    def take(self, task, part):
        self.taken.append(str(task.tile))
        if part.engines != ("given up",):
            return ()
        return [TileBlock(RowBlock(0, 50), RowBlock(start, start + 25)) for start in (0, 25)]


class Tiles:
    def __init__(self, function=part_of):
        self.tasks, self._function = TASKS, function

    def queue(self, collector):
        return TileQueue(self.tasks, collector)

    def function(self, comparing, context):
        return self._function

    def options(self, queue):
        return {"in_flight": 2, "retries": 0}

    def sent_bytes(self, queue):
        return {"algo-1": 3}


def compared(collector, dispatch=None):
    """Return the report, and the rows that progress counted."""
    events = []
    report = Report(emit_event=events.append)
    compare(dispatch or Tiles(), collector, None, ROWS, report)
    return report, [event.done for event in events if isinstance(event, Progress)]


def test_every_tile_is_taken_and_one_that_is_given_up_comes_again_in_pieces(ray_here):
    collector = Kept()
    report, done = compared(collector)
    halves = [str(TileBlock(BLOCKS[0], RowBlock(start, start + 25))) for start in (50, 75)]
    assert sorted(collector.taken) == sorted([*(str(task.tile) for task in TASKS), *halves])
    assert (done[0], done[-1]) == (0, ROWS)
    assert done == sorted(done)
    assert (report.peaks, report.task_seconds) == ({"algo-1": 7}, 4 * 0.25 + 0.5)
    assert (report.blocks, report.blocks_found) == (3, 0)
    assert report.sent_bytes == {"algo-1": 3}


def test_what_an_earlier_run_recorded_is_read_instead(ray_here, tmp_path):
    record = BlockRecord(tmp_path, {}, encode=encode_part, decode=decode_part)
    record.save(TASKS[0], Part(arrays={}, peaks={}, seconds=9.0, engines=("earlier",)))
    report, done = compared(Kept(recorded=record))
    assert (report.blocks, report.blocks_found, done[-1]) == (3, 1, ROWS)
    assert "earlier" in report.engines
    assert all(task in record for task in TASKS)


def test_a_task_that_fails_ends_it_with_its_name(ray_here):
    with pytest.raises(BlockFailed, match=r"^rows \d+ to \d+, columns \d+ to \d+ failed: "):
        compared(Kept(), Tiles(fail))
