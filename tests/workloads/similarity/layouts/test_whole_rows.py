import numpy as np
import pytest

from raysm.workloads.similarity.layouts.whole_rows import WholeRows, load_everywhere
from tests.support.similarity import saved


@pytest.fixture
def rows(tmp_path):
    source = saved(np.ones((100, 3), dtype=np.float32), tmp_path)
    return WholeRows(source, source.open())


def test_rows_that_lie_everywhere_lie_as_they_are_numbered_and_never_travel(rows):
    assert [(run.start, run.offset, run.rows) for run in rows.order.runs] == [(0, 0, 100)]
    assert (rows.slots, rows.row_bytes, rows.largest_share) == ({}, 0.0, 100)
    assert rows.sent_bytes({"algo-1": 100}) == {}


def test_tasks_are_told_the_type_that_all_rows_are_read_as(rows):
    shape = rows.shape(np.dtype(np.float64), sparse=False)
    assert (shape.rows, shape.columns, shape.dtype) == (100, 3, np.float64)
    assert shape.placement.rows_on("algo-7").rows == 100
    assert rows.as_type(np.dtype(np.float64)).dtype == np.float64


def test_chunks_are_the_same_on_every_instance_and_no_larger_than_asked_for(rows):
    found = rows.chunks({"algo-1": 1, "algo-2": 16}, 40)
    first, second = found.values()
    assert [chunk.range for chunk in first] == [chunk.range for chunk in second]
    assert {chunk.host for chunk in second} == {"algo-2"}
    assert sum(chunk.rows for chunk in first) == 100
    assert max(chunk.rows for chunk in first) <= 40


def test_without_a_channel_nobody_is_asked_to_load_any():
    assert load_everywhere([]) == []
