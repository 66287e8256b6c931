import hashlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.contract.store import sha256_of
from raysm.errors import NoRoom
from raysm.workloads import parquet
from raysm.workloads.parquet import write_parquet


def schema_of(k=3):
    def element(kind):
        return pa.field("item", kind, nullable=False)

    return pa.schema(
        [
            pa.field("row", pa.int64(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            pa.field("one", pa.float32(), nullable=False),
            pa.field("best", pa.list_(element(pa.int64()), k), nullable=False),
            pa.field("scores", pa.list_(element(pa.float32()), k), nullable=False),
        ]
    )


def groups_of(sizes, k=3):
    start, rng = 0, np.random.default_rng(0)
    for size in sizes:
        rows = np.arange(start, start + size)
        yield [
            pa.array(rows),
            pa.array([f"n{row}" for row in rows], pa.string()),
            rng.random(size, dtype=np.float32),
            rng.integers(-(2**63), 2**63 - 1, (size, k)),
            rng.random((size, k), dtype=np.float32),
        ]
        start += size


def expected(sizes, k=3):
    columns = zip(*groups_of(sizes, k), strict=True)
    return [np.concatenate([np.asarray(part) for part in column]).tolist() for column in columns]


def test_a_parquet_file_is_written_whole_with_its_digest(tmp_path):
    path, sizes = tmp_path / "x.parquet", [3, 3, 1]
    file = write_parquet(path, schema_of(), groups_of(sizes), 5)
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == sha256_of(path)
    assert (file.name, file.shape, file.bytes) == ("x.parquet", (7, 5), path.stat().st_size)
    assert [column.to_pylist() for column in pq.read_table(path).columns] == expected(sizes)
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_arrow_says_of_the_file_is_what_it_says_of_its_own(tmp_path):
    def said(path):
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        columns = [group.column(at) for group in groups for at in range(group.num_columns)]
        shapes = [(one.path_in_schema, one.physical_type, one.num_values, one.compression) for one in columns]
        return metadata.schema.to_arrow_schema(), metadata.num_rows, [group.num_rows for group in groups], shapes

    write_parquet(tmp_path / "ours", schema_of(), groups_of([3, 3, 1]))
    codecs = {"row": "zstd", "name": "zstd", "one": "none", "best.list.element": "none", "scores.list.element": "none"}
    with pq.ParquetWriter(tmp_path / "arrows", schema_of(), compression=codecs) as writer:
        for group in groups_of([3, 3, 1]):
            lists = [
                pa.FixedSizeListArray.from_arrays(pa.array(one.ravel()), type=schema_of().field(name).type)
                for one, name in zip(group[3:], ("best", "scores"), strict=True)
            ]
            arrays = [group[0], group[1], pa.array(group[2]), *lists]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema_of()))
    assert said(tmp_path / "ours") == said(tmp_path / "arrows")


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 40), max_size=4), k=st.integers(1, 20), page=st.sampled_from([1, 100, 1 << 20]))
def test_any_number_of_groups_pages_and_neighbors_reads_back(tmp_path_factory, sizes, k, page):
    path = tmp_path_factory.mktemp("x") / "x.parquet"
    before, parquet.PAGE_BYTES = parquet.PAGE_BYTES, page
    try:
        write_parquet(path, schema_of(k), groups_of(sizes, k))
    finally:
        parquet.PAGE_BYTES = before
    table = pq.read_table(path)
    assert table.schema.equals(schema_of(k))
    assert [column.to_pylist() for column in table.columns] == (expected(sizes, k) if sizes else [[]] * 5)


def test_single_rows_can_be_read_from_the_middle(tmp_path):
    sizes = [100, 100]
    write_parquet(tmp_path / "x.parquet", schema_of(), groups_of(sizes))
    batches = list(pq.ParquetFile(tmp_path / "x.parquet").iter_batches(7, row_groups=[1], columns=["best"]))
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == expected(sizes)[3][100:]


def test_a_file_that_fails_half_way_is_not_there(tmp_path):
    def breaks():
        yield from groups_of([3])
        raise OSError("the part is gone")

    with pytest.raises(OSError, match="the part is gone"):
        write_parquet(tmp_path / "x.parquet", schema_of(), breaks())
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_becomes_full_is_said(tmp_path):
    def fills():
        yield from groups_of([3])
        raise OSError(28, "No space left on device")

    with pytest.raises(NoRoom, match=re.escape("became full while x.parquet was written")):
        write_parquet(tmp_path / "x.parquet", schema_of(), fills())
