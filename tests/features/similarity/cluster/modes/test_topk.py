"""The best k neighbors of the rows of a tile, as a task returns them."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from raysm.features.similarity.cluster.modes.mode import Ranges
from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.cluster.tasks import TileTask, get_engine_cache
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from tests.support.dense_rows import expected_keys, kinds_of_rows
from tests.support.similarity import context_of, owned_ranges, saved

ROWS = kinds_of_rows(rows=90)["float32"]


class Noting:
    """Compares as another engine does, and notes how many rows it prepares at a time."""

    def __init__(self, engine):
        self.prepared, self.topk = [], engine.topk
        self._engine = engine

    def prepare(self, tile, frame):
        self.prepared.append(len(tile))
        return self._engine.prepare(tile, frame)


def test_a_task_prepares_no_more_rows_at_a_time_than_memory_allows_in_cuts_of_about_one_size(
    tmp_path,
):
    context = replace(context_of(saved(ROWS, tmp_path)), operand_rows=25)
    cache = get_engine_cache(context)
    cache.engine = Noting(cache.engine)
    found = TopK(3).compare(context, TileTask(TileBlock(RowBlock(0, 90), RowBlock(0, 90)), True))
    assert cache.engine.prepared == [23, 23, 23, 21]
    assert found["keys"].tolist() == expected_keys(ROWS, 3).ravel().tolist()


@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_room_that_an_owner_asks_for_is_what_its_file_takes(tmp_path, k):
    rows = np.random.default_rng(0).standard_normal((2000, 4))
    mode, context, ranges = TopK(k), context_of(saved(rows, tmp_path)), Ranges.even(2000, 1)
    task = TileTask(TileBlock(RowBlock(0, 2000), RowBlock(0, 2000)), True)
    with closing(mode.merger(owned_ranges(ranges, 2000)[0], tmp_path, tmp_path, None)) as merger:
        for _, piece in mode.split(task, mode.compare(context, task), ranges):
            merger.take("piece", piece)
        file = merger.write(None, lambda rows: None)
        assert 0.95 < file.bytes / merger.result_bytes < 1.05
        assert merger.scratch_bytes == merger.recorded_bytes == 2000 * k * 8
