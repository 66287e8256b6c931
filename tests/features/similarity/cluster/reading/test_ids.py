import decimal
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.keys import encode
from raysm.features.similarity.cluster.output import (
    NEIGHBORS,
    PAIRS,
    write_ids,
    write_neighbors,
    write_pairs,
)
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.files import peek
from raysm.features.similarity.cluster.reading.ids import Ids
from raysm.features.similarity.cluster.reading.matrix import open_matrix
from raysm.instance.work.row_blocks import RowBlock

ITEM = Selection(ids=("item",))
ROWS = 5
NAMES = [f"n°{i}" for i in range(ROWS)]
VALUES = [
    pa.array([2**64 - 1 - i for i in range(ROWS)], pa.uint64()),
    pa.array(NAMES),
    pa.array(NAMES).dictionary_encode(),
    pa.array([b"\xb0%02d" % i for i in range(ROWS)], pa.binary(3)),
    pa.array([1_000_000 * i for i in range(ROWS)]).cast(pa.timestamp("ns", "Europe/Berlin")),
    pa.array([True, False, False, True, False]),
    pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
]
NEIGHBORS_OF = np.array([[1, 4], [2, 0], [0, 3], [4, 1], [3, 2]])


def a_table(ids, folder, name="m.parquet"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": np.ones(len(ids)), "item": ids}), path)
    return path


def ids_in(matrix):
    return pa.concat_arrays(list(matrix.id_batches()))


def ids_of(path, folder):
    peek(path, ITEM)
    matrix = open_matrix(path, folder / "scratch", ITEM)
    return Ids(neighbors=ids_in(matrix))


def keys(start, stop):
    return encode(np.full((stop - start, 2), 0.5, dtype=np.float32), NEIGHBORS_OF[start:stop])


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_ids_of_any_type_stand_beside_rows_and_neighbors(tmp_path, values):
    ids, expected = ids_of(a_table(values, tmp_path), tmp_path), values.to_pylist()
    write_neighbors(tmp_path / NEIGHBORS, RowBlock(0, ROWS), keys, 2, ids=ids)
    found = pq.read_table(tmp_path / NEIGHBORS)
    assert found.schema.names == ["row", "id", "neighbors", "neighbor_ids", "similarities"]
    assert found["id"].to_pylist() == expected
    assert found["neighbor_ids"].to_pylist() == [
        [expected[i] for i in pair] for pair in NEIGHBORS_OF
    ]
    write_pairs(
        tmp_path / PAIRS, [(np.array([0, 3]), np.array([2, 4]), np.ones(2, dtype=np.float32))], ids
    )
    found = pq.read_table(tmp_path / PAIRS)
    assert found.schema.names == ["row", "id", "neighbor", "neighbor_id", "similarity"]
    assert found["id"].to_pylist() == [expected[0], expected[3]]
    assert found["neighbor_id"].to_pylist() == [expected[2], expected[4]]
    write_ids(tmp_path / "ids.parquet", ids.neighbors)
    assert pq.read_table(tmp_path / "ids.parquet")["id"].to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.struct([("a", pa.int8()), ("b", pa.int8())]), [{"a": 1, "b": 2}]), (pa.null(), [None])],
    ids=str,
)
def test_a_column_that_names_no_rows_is_refused_by_its_file_alone(tmp_path, kind, values):
    path = a_table(pa.array(values, kind), tmp_path)
    said = "an id is a number"
    with pytest.raises(InvalidInput, match=re.escape(said)):
        peek(path, ITEM)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        open_matrix(path, tmp_path / "scratch", ITEM)


def test_the_bytes_do_not_depend_on_the_pieces_in_which_ids_come(tmp_path):
    """A sharded matrix has its ids in other pieces than a replicated one, nullable or not."""
    digests = set()
    for group in (2, 5):
        path = tmp_path / str(group) / "m.parquet"
        path.parent.mkdir()
        ids = pa.array(["a", "bb", "ccc", "dddd", "eeeee"])
        pq.write_table(pa.table({"x": np.ones(ROWS), "item": ids}), path, row_group_size=group)
        ids = ids_of(path, path.parent)
        target = path.parent / NEIGHBORS
        digests.add(write_neighbors(target, RowBlock(0, ROWS), keys, 2, ids=ids).sha256)
    assert len(digests) == 1
