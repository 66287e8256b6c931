"""All tasks are done once, whichever an earlier run did and whichever are given up; the progress ends at all rows."""

from types import SimpleNamespace

import pytest

from raysm.contract.events import Progress
from raysm.errors import BlockFailed
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.layouts.comparing import compare
from raysm.workloads.similarity.layouts.layout import Dispatch
from raysm.workloads.similarity.layouts.replicated import TileQueue
from raysm.workloads.similarity.modes import Collector
from raysm.workloads.similarity.runs import Report
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part
from raysm.workloads.similarity.tasks.tile_task import FreeTile

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


class Kept(Collector):
    """Keeps the names of what it took; a tile of two blocks is given up for two halves."""

    def __init__(self, recorded=None):
        self.taken, self.recorded = [], recorded

    def take(self, task, part):
        self.taken.append(str(task.tile))
        if part.engines != ("given up",):
            return ()
        return [TileBlock(RowBlock(0, 50), RowBlock(start, start + 25)) for start in (0, 25)]

    def gather(self, throttle):
        raise NotImplementedError


class Tiles(Dispatch):
    def __init__(self, function=part_of):
        self.tasks, self._function = TASKS, function

    def queue(self, collector):
        return TileQueue(self.tasks, collector)

    def function(self, mode, context):
        return self._function

    def options(self, queue):
        return {"in_flight": 2, "retries": 0}

    def sent_bytes(self, queue):
        return {"algo-1": 3}


def compared(collector, dispatch=None):
    """Return the report, and the rows that progress counted."""
    events = []
    report = Report(emit_event=events.append)
    run = SimpleNamespace(queries=SimpleNamespace(rows=ROWS), context=None)
    compare(run, None, dispatch or Tiles(), collector, report)
    return report, [event.done for event in events if isinstance(event, Progress)]


def test_every_tile_is_taken_and_one_that_is_given_up_comes_again_in_pieces(ray_here):
    collector = Kept()
    report, done = compared(collector)
    given_up = str(TASKS[1].tile)
    halves = [str(TileBlock(BLOCKS[0], RowBlock(start, start + 25))) for start in (50, 75)]
    assert sorted(collector.taken) == sorted([str(TASKS[0].tile), given_up, *halves, str(TASKS[2].tile)])
    assert (done[0], done[-1]) == (0, ROWS)
    assert done == sorted(done)
    assert report.engines == {"an engine", "given up"}
    assert (report.peaks, report.task_seconds) == ({"algo-1": 7}, 4 * 0.25 + 0.5)
    assert (report.blocks, report.blocks_found) == (3, 0)
    assert report.sent_bytes == {"algo-1": 3}
    assert "similarity" in report.phases_s


def test_what_an_earlier_run_recorded_is_read_instead(ray_here, tmp_path):
    record = BlockRecord(tmp_path, {}, encode=encode_part, decode=decode_part)
    record.save(TASKS[0], Part(arrays={}, peaks={}, seconds=9.0, engines=("earlier",)))
    collector = Kept(recorded=record)
    report, done = compared(collector)
    assert (report.blocks, report.blocks_found, done[-1]) == (3, 1, ROWS)
    assert "earlier" in report.engines
    assert all(task in record for task in TASKS)


def test_a_task_that_fails_ends_it_with_its_name(ray_here):
    with pytest.raises(BlockFailed, match=r"^rows \d+ to \d+, columns \d+ to \d+ failed: "):
        compared(Kept(), Tiles(fail))
