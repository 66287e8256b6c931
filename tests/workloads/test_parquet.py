import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.contract.store import sha256_of
from raysm.workloads.parquet import write_parquet

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("name", pa.large_string(), nullable=False),
        pa.field("best", pa.list_(pa.field("item", pa.float32(), nullable=False), 3), nullable=False),
    ]
)


def groups_of(sizes):
    start, rng = 0, np.random.default_rng(0)
    for size in sizes:
        rows = np.arange(start, start + size)
        best = pa.array(rng.random(size * 3, dtype=np.float32))
        yield [
            pa.array(rows),
            pa.array([f"n{row}" for row in rows], pa.large_string()),
            pa.FixedSizeListArray.from_arrays(best, type=SCHEMA.field("best").type),
        ]
        start += size


def test_a_parquet_file_is_written_whole_with_its_digest(tmp_path):
    path, sizes = tmp_path / "x.parquet", [3, 3, 1]
    file = write_parquet(path, SCHEMA, groups_of(sizes), inner=(5,))
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == sha256_of(path)
    assert (file.name, file.shape, file.bytes) == ("x.parquet", (7, 5), path.stat().st_size)
    expected = pa.concat_tables(pa.table(group, schema=SCHEMA) for group in groups_of(sizes))
    assert pq.read_table(path).equals(expected)
    assert pq.read_table(path).schema.equals(SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_a_file_that_fails_half_way_is_not_there(tmp_path):
    def breaks():
        yield from groups_of([3])
        raise OSError("the part is gone")

    with pytest.raises(OSError, match="the part is gone"):
        write_parquet(tmp_path / "x.parquet", SCHEMA, breaks())
    assert list(tmp_path.iterdir()) == []
