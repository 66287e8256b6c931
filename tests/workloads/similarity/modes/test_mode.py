"""What a mode is unless it says otherwise."""

from types import SimpleNamespace

import pytest

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.modes import MODES
from raysm.workloads.similarity.modes.mode import Collector, Mode
from raysm.workloads.similarity.sizing.sizing import PartLimits
from raysm.workloads.similarity.tasks.tile_task import FreeTile


class Plain(Mode):
    """A mode with nothing but what it has to have; it notes what it compares."""

    name = "plain"

    def __init__(self):
        self.compared = []

    @classmethod
    def asked_by(cls, workload):
        return cls()

    @property
    def limits(self):
        return PartLimits(rows=10)

    def check_room(self, queries, matrix, folders, scratch, free=None):
        pass

    def compare(self, context, task):
        self.compared.append(task)
        return {}

    def collect(self, run, tiles, record, sizing):
        raise NotImplementedError

    def gathering_seconds(self, matrix, scratch, slots):
        return 0.0


class Keeping(Collector):
    def take(self, task, part):
        return ()

    def gather(self, throttle):
        return ()


def sizing_of(rows, queries=None):
    return SimpleNamespace(
        matrix=SimpleNamespace(rows=rows),
        queries=SimpleNamespace(rows=queries or rows),
        triangle_rows=lambda record: 4,
        rectangle_rows=lambda record: (3, 5),
    )


def test_each_pair_of_a_self_join_is_in_one_tile_of_the_triangle():
    tiles = Plain().tiles(sizing_of(10), None, self_join=True)
    pairs = [
        frozenset((row, column))
        for task in tiles
        for row in range(task.tile.rows.start, task.tile.rows.stop)
        for column in range(task.tile.columns.start, task.tile.columns.stop)
        if task.mirrored or row <= column
    ]
    assert len(pairs) == len(set(pairs)) == 10 * 11 // 2


def test_queries_meet_each_row_once_in_tiles_of_the_rectangle():
    tiles = Plain().tiles(sizing_of(10, queries=7), None, self_join=False)
    assert not any(task.mirrored for task in tiles)
    assert sum(task.area for task in tiles) == 70
    assert (max(task.tile.rows.rows for task in tiles), max(task.tile.columns.rows for task in tiles)) == (3, 5)


def test_a_probe_measures_a_tile_of_the_diagonal_and_the_one_beside_it():
    mode, both = Plain(), TileBlock(RowBlock(0, 5), RowBlock(5, 10))
    times = iter((2.0, 3.0))

    def seconds(call):
        call()
        return next(times)

    assert mode.probe(SimpleNamespace(self_join=True), both, None, seconds) == (2.0, 3.0, 0.0)
    assert [str(task) for task in mode.compared] == [str(TileBlock(both.rows, both.rows)), str(both)]


def test_a_collector_that_says_nothing_dispatches_all_and_tells_nothing():
    collector, task = Keeping(), FreeTile(TileBlock(RowBlock(0, 1), RowBlock(0, 1)), True)
    assert (collector.hint(task), collector.recorded) == (None, None)
    collector.close()


@pytest.mark.parametrize("kind", MODES)
def test_every_mode_has_a_name_of_its_own(kind):
    assert [other.name for other in MODES].count(kind.name) == 1
    assert issubclass(kind, Mode)
