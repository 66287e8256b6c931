"""Rows of a channel that lie on their instances, as the head loads them; here on the one instance of a Ray."""

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.layouts.rows import ShardedRows
from raysm.workloads.similarity.reading.matrix import Source

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


def test_the_first_bad_row_is_named_with_its_file(channel):
    bad = ROWS[20:].copy()
    bad[[7, 3], 0] = np.nan
    np.save(channel / "part-10.npy", bad)
    rows = load(channel)
    shape = rows.shape(np.dtype(np.float32), sparse=False)
    with pytest.raises(InvalidInput, match=r"row 23 of the matrix .*\(.*part-10.npy.*\)"):
        list(rows.prepared_parts(shape, "the matrix"))
