"""Rows of a channel that lie on their instances, as the head loads them; here on the one instance of a Ray."""

import json

import numpy as np
import pytest

from raysm.errors import InstanceLost, InvalidInput
from raysm.workloads.similarity.layouts.rows import ShardedRows
from raysm.workloads.similarity.reading.matrix import Source
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


def test_rows_of_an_instance_that_is_not_there_are_missed(channel, base):
    config = base / "input" / "config" / "resourceconfig.json"
    config.write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}))
    with pytest.raises(InstanceLost, match="algo-2"):
        load(channel)
