"""The best k neighbors of the rows of a tile, as a task returns them."""

from dataclasses import replace

from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.cluster.tasks.context import engine_cache_of
from raysm.features.similarity.cluster.tasks.parts import TileTask
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from tests.support.dense_rows import expected_keys, kinds_of_rows
from tests.support.similarity import context_of, saved

ROWS = kinds_of_rows(rows=90)["float32"]


class Noting:
    """Compares as another engine does, and notes how many rows it prepares at a time."""

    def __init__(self, engine):
        self.prepared, self.topk = [], engine.topk
        self._engine = engine

    def prepare(self, tile, frame):
        self.prepared.append(len(tile))
        return self._engine.prepare(tile, frame)


def test_a_task_prepares_no_more_rows_at_a_time_than_memory_allows_in_cuts_of_about_one_size(tmp_path):
    context = replace(context_of(saved(ROWS, tmp_path)), operand_rows=25)
    cache = engine_cache_of(context)
    cache.engine = Noting(cache.engine)
    found = TopK(3).compare(context, TileTask(TileBlock(RowBlock(0, 90), RowBlock(0, 90)), True))
    assert cache.engine.prepared == [23, 23, 23, 21]
    assert found["keys"].tolist() == expected_keys(ROWS, 3).ravel().tolist()
