import contextlib
import os
import resource

import numpy as np
import pytest

from raysm.workloads.blocks import RowBlock, TileBlock, row_blocks
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.modes.merged_pairs import merged_pairs
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


def pairs_part(pairs):
    """Return the part of a task that found these pairs."""
    rows, neighbors = (np.array(column, dtype=np.uint32) for column in zip(*pairs, strict=True))
    first, counts = np.unique(rows, return_counts=True)
    arrays = {"rows": first, "counts": counts.astype(np.uint32), "neighbors": neighbors}
    return Part(arrays=arrays | {"similarities": np.ones(len(rows), np.float32)}, peaks={"algo-1": 0}, seconds=0.0)


def test_there_may_be_more_tiles_beside_each_other_than_open_files(record, tmp_path):
    cuts = row_blocks(PARTS, 1)
    tiles = [TileBlock(cuts[0], columns) for columns in cuts]
    for tile in tiles:
        record.save(tile, pairs_part([(0, tile.columns.start)]))
    with few_open_files():
        (chunk,) = merged_pairs(record, list(map(str, tiles)), RowBlock(0, 1), lambda rows: None)
    assert chunk[1].tolist() == list(range(PARTS))


def test_pairs_of_all_parts_come_sorted_wherever_they_were_found(record):
    rng = np.random.default_rng(0)
    everyone = sorted({(int(i), int(j)) for i, j in rng.integers(0, 300, (2000, 2))})
    for name in range(7):
        record.save(name, pairs_part(everyone[name::7]))
    done = []
    chunks = list(merged_pairs(record, list(map(str, range(7))), RowBlock(0, 300), done.append))
    rows, neighbors = (np.concatenate(column).tolist() for column in list(zip(*chunks, strict=True))[:2])
    assert list(zip(rows, neighbors, strict=True)) == everyone
    assert sum(done) == 300
