"""Rows of a channel that lie on their instances, as the head loads them; here on the one instance of a Ray."""

import json

import numpy as np
import pytest

from raysm.errors import InstanceLost, InvalidInput
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.layouts.sharded_rows import ShardedRows
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.tasks.preparing import prepared

ROWS = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


@pytest.fixture
def channel(base, request):
    # Another for each test: a process maps what lies at one place once.
    folder = base / "input" / "data" / request.node.name.partition("[")[0]
    folder.mkdir(parents=True)
    for name, start, stop in (("part-2", 0, 20), ("part-10", 20, 50)):
        np.save(folder / f"{name}.npy", ROWS[start:stop])
    return folder


def load(channel):
    return ShardedRows(Source(channel=channel.name, sharded=True))


def test_what_is_known_of_the_rows_is_what_their_instance_reported(channel):
    rows = load(channel)
    assert (rows.described.rows, rows.described.columns, rows.described.dtype) == (50, 4, np.float32)
    assert dict(rows.slots) == {"algo-1": 2}
    assert list(rows.order.runs) == [Run(0, 0, 50)]
    assert rows.row_bytes == 16.0
    assert rows.sent_bytes({"algo-1": 10}) == {"algo-1": 160}
    assert rows.largest_share == 50
    # Ray's own least, of a store.
    assert rows.store_bytes >= 70 << 20


def test_tasks_are_told_where_rows_lie(channel):
    shape = load(channel).shape(np.dtype(np.float64), sparse=False)
    assert (shape.rows, shape.columns, shape.dtype) == (50, 4, np.float64)
    assert (shape.placement.rows_on("algo-1").rows, shape.placement.rows_on("algo-9").rows) == (50, 0)


def test_rows_are_prepared_where_they_lie(channel):
    rows = load(channel)
    shape = rows.shape(np.dtype(np.float32), sparse=False)
    operand = prepared(shape, list(rows.prepared_parts(shape, "the matrix")))
    np.testing.assert_allclose(operand.norms, np.linalg.norm(ROWS.astype(np.float64), axis=1))


def test_the_first_bad_row_is_named_with_its_file(channel):
    bad = ROWS[20:].copy()
    bad[[7, 3], 0] = np.nan
    np.save(channel / "part-10.npy", bad)
    rows = load(channel)
    shape = rows.shape(np.dtype(np.float32), sparse=False)
    with pytest.raises(InvalidInput, match=r"row 23 of the matrix .*\(.*part-10.npy.*\)"):
        list(rows.prepared_parts(shape, "the matrix"))


def test_the_digest_depends_on_the_files_alone(channel):
    digest = load(channel).digest().result(timeout=60)
    assert digest == load(channel).digest().result(timeout=60)
    np.save(channel / "part-10.npy", ROWS[20:] + 1)
    assert load(channel).digest().result(timeout=60) != digest


def test_shares_are_cut_into_chunks_that_have_all_rows_once(channel):
    (chunks,) = load(channel).chunks({"algo-1": 2}, 15).values()
    assert [chunk.rows for chunk in chunks] == [12, 13, 12, 13]
    ends = [(chunk.range.start, chunk.range.stop) for chunk in chunks]
    assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
    assert ends[-1][1] == 50


def test_rows_of_an_instance_that_is_not_there_are_missed(channel, base):
    config = base / "input" / "config" / "resourceconfig.json"
    config.write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}))
    with pytest.raises(InstanceLost, match="algo-2"):
        load(channel)
