import contextlib
import os
import resource

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.workloads.blocks import TileBlock, row_blocks
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.output import write_pairs
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part

PARTS = 400


@pytest.fixture
def record(tmp_path):
    return BlockRecord(tmp_path / "records", {}, encode=encode_part, decode=decode_part)


@contextlib.contextmanager
def few_open_files(more=32):
    """Allow this process ``more`` open files than it has now."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def part(**arrays):
    return Part(arrays=arrays, peaks={"algo-1": 0}, seconds=0.0)


def test_there_may_be_more_tiles_beside_each_other_than_open_files(record, tmp_path):
    cuts = row_blocks(PARTS, 1)
    stripe = [TileBlock(cuts[0], columns) for columns in cuts]
    for tile in stripe:
        neighbors = np.array([tile.columns.start], dtype=np.uint32)
        pairs = {"offsets": np.array([0, 1]), "neighbors": neighbors, "similarities": np.ones(1, dtype=np.float32)}
        record.save(tile, part(**pairs))
    with few_open_files():
        write_pairs(tmp_path, record, [stripe], lambda rows: None)
    assert pq.read_table(tmp_path / "pairs.parquet")["neighbor"].to_pylist() == list(range(PARTS))
