"""What the head knows of spread rows, and what it asks the instances for; here of one instance, on a Ray of its own."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InstanceLost
from raysm.workloads.blocks import RowBlock
from raysm.workloads.presence import LOST_AFTER_S, Presence
from raysm.workloads.similarity.layouts.sharded.asking import SpreadMatrix, asked, chunk_of, digest_of, digests
from raysm.workloads.similarity.layouts.sharded.index import join, report
from raysm.workloads.similarity.layouts.sharded.schedule import cut
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.digests import joined
from raysm.workloads.similarity.reading.source import Place, Source


@pytest.fixture
def source(tmp_path):
    """Two Parquet files of three and four rows, with ids."""
    folder = tmp_path / "matrix"
    folder.mkdir()
    for name, start, stop in (("part-2", 0, 3), ("part-10", 3, 7)):
        ids = pa.array([f"row {number}" for number in range(start, stop)])
        values = {f"v{column}": pa.array(np.arange(start, stop) + 0.5 * column) for column in range(2)}
        pq.write_table(pa.table({"key": ids, **values}), folder / f"{name}.parquet")
    return Source(
        channel="matrix",
        selection=Selection(ids=("key",)),
        sharded=True,
        place=Place(folder, tmp_path / "scratch", "algo-1"),
    )


def test_a_spread_matrix_is_described_by_what_the_instances_reported(source):
    index = join([report(source)], ["algo-1"], "matrix")
    matrix = SpreadMatrix(index, source)
    assert (matrix.rows, matrix.columns, matrix.dtype, matrix.sparse) == (7, 2, np.float64, False)
    assert matrix.names == ["part-2.parquet", "part-10.parquet"]
    assert SpreadMatrix(index, source, np.dtype(np.float32)).dtype == np.float32


def test_the_digest_is_that_of_the_same_files_in_one_folder(ray_here, source):
    index = join([report(source)], ["algo-1"], "matrix")
    files = [(name, (source.here().channel / name).read_bytes()) for name in index.names]
    expected = joined([(name, hashlib.sha256(content).hexdigest()) for name, content in files])
    assert digest_of(index, [asked("algo-1", digests, source)]) == expected


def test_an_instance_that_is_gone_before_its_files_are_digested_is_named(source):
    index = join([report(source)], ["algo-1"], "matrix")
    with pytest.raises(InstanceLost, match="algo-1 went away while its files were digested"):
        digest_of(index, [])


def test_an_instance_without_files_has_no_digests(tmp_path):
    (tmp_path / "matrix").mkdir()
    empty = Source(channel="matrix", sharded=True, place=Place(tmp_path / "matrix", tmp_path / "scratch", "algo-2"))
    assert digests(empty) == []


def test_a_chunk_brings_its_rows_and_no_others(ray_here, source):
    index = join([report(source)], ["algo-1"], "matrix")
    chunks = cut(index.shards[0], 4)
    rows = [ray_here.get(chunk_of(source, chunk, np.dtype(np.float32))) for chunk in chunks]
    assert [matrix.rows for matrix in rows] == [chunk.rows for chunk in chunks]
    together = np.concatenate([matrix.read(0, matrix.rows) for matrix in rows])
    np.testing.assert_array_equal(together, source.open().as_type(np.dtype(np.float32)).read(0, 7))
    assert chunks[0].range == RowBlock(0, chunks[0].rows)


def test_ids_come_in_the_order_of_the_rows(ray_here, source):
    index = join([report(source)], ["algo-1"], "matrix")
    pieces = list(SpreadMatrix(index, source).id_batches())
    assert pa.concat_arrays(pieces).to_pylist() == [f"row {number}" for number in range(7)]


def test_ids_of_an_instance_that_is_gone_for_good_are_not_waited_for(source):
    pieces = SpreadMatrix(join([report(source)], ["algo-1"], "matrix"), source).id_pieces
    presence, others = Presence(0, 0), [{"Labels": {"raysm.io/host": "algo-2"}, "Resources": {"CPU": 2.0}}]
    presence.check(pieces, others, 0)
    with pytest.raises(InstanceLost, match="only it has piece 0 of the ids of part-10.parquet, on algo-1"):
        presence.check(pieces, others, LOST_AFTER_S + 1)
