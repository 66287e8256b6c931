"""Which columns of a table are features, which are not, and the ids of the rows in the result."""

import decimal
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.keys import encode
from raysm.features.similarity.cluster.modes.full import write_ids
from raysm.features.similarity.cluster.modes.threshold import PAIRS, write_pairs
from raysm.features.similarity.cluster.modes.topk import NEIGHBORS, write_neighbors
from raysm.features.similarity.cluster.reading.columns import Ids, Selection
from raysm.features.similarity.cluster.reading.files import peek
from raysm.features.similarity.cluster.reading.matrix import describe, open_matrix
from raysm.instance.work.row_blocks import RowBlock
from tests.support.pages import outputs

ROWS = np.arange(12, dtype=np.float64).reshape(4, 3) + 1
NAMES = ["a", "b", "c"]


@pytest.fixture
def read(tmp_path):
    """Return the rows of a file or folder, checked first as before a job is sent."""

    def read(path, expected=None, **selection):
        chosen = Selection(**selection)
        peek(path, chosen, expected)
        matrix = open_matrix(path, tmp_path / "scratch", chosen, expected=expected)
        return matrix.read(0, matrix.rows)

    return read


def frame(**kwargs):
    return pd.DataFrame(ROWS, columns=NAMES, **kwargs)


def test_the_index_that_pandas_hides_in_a_parquet_file_is_not_a_feature(read, tmp_path):
    # As frame[mask].to_parquet(…) writes it.
    frame(index=[7, 9, 2, 4]).to_parquet(tmp_path / "m.parquet")
    assert pq.read_schema(tmp_path / "m.parquet").names == [*NAMES, "__index_level_0__"]
    np.testing.assert_array_equal(read(tmp_path / "m.parquet"), ROWS)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("", ".csv"),
        ("Unnamed: 0", ".csv.gz"),
        ("index", ".parquet"),
        ("Row.names", ".tsv"),
        ("", ".parquet"),
        ("id", ".csv"),
        ("user_id", ".parquet"),
        ("PassengerId", ".tsv"),
    ],
)
def test_a_column_that_looks_like_a_row_index_is_refused_with_every_way_out(
    read, tmp_path, name, suffix
):
    path = tmp_path / f"m{suffix}"
    table = pa.table({name: np.arange(4.0)} | dict(zip(NAMES, ROWS.T, strict=True)))
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    with pytest.raises(InvalidInput, match="looks like a row index") as error:
        read(path)
    assert "--id-column" in str(error.value)
    assert "index=False" in str(error.value)
    np.testing.assert_array_equal(read(path, exclude=(name,)), ROWS)
    np.testing.assert_array_equal(read(path, ids=(name,)), ROWS)
    np.testing.assert_array_equal(
        read(path, columns=(name, "b")), np.column_stack([np.arange(4), ROWS[:, 1]])
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_whose_values_count_is_refused_until_it_is_named(read, tmp_path, suffix):
    path, rows = (
        tmp_path / f"m{suffix}",
        np.column_stack([np.arange(1001, 1013), np.arange(12) ** 2]),
    )
    save(path, ["n", "bid"], rows)
    with pytest.raises(InvalidInput, match="'n' looks like a row index"):
        read(path)
    np.testing.assert_array_equal(read(path, exclude=("n",)), rows[:, 1:])
    np.testing.assert_array_equal(read(path, columns=("n", "bid")), rows)
    np.savetxt(tmp_path / "plain.csv", rows, delimiter=",")
    with pytest.raises(InvalidInput, match="no header.* column 0"):
        read(tmp_path / "plain.csv")


def test_a_first_line_that_may_be_a_header_or_a_row_is_refused(read, tmp_path):
    (tmp_path / "m.csv").write_text("2001,2002,2003\n1,2,4\n")
    with pytest.raises(InvalidInput, match="2001, 2002, 2003"):
        read(tmp_path / "m.csv")
    (tmp_path / "m.csv").write_text("0,1,2\n1,2,4\n")
    np.testing.assert_array_equal(read(tmp_path / "m.csv"), [[1, 2, 4]])


def test_features_can_be_chosen_or_excluded_beside_text(read, tmp_path):
    table = pa.table({"title": ["w", "x", "y", "z"]} | dict(zip(NAMES, ROWS.T, strict=True)))
    pq.write_table(table, tmp_path / "m.parquet")
    table.to_pandas().to_csv(tmp_path / "m.csv", index=False)
    for name in ("m.parquet", "m.csv"):
        np.testing.assert_array_equal(read(tmp_path / name, columns=("c", "a")), ROWS[:, [0, 2]])
        np.testing.assert_array_equal(
            read(tmp_path / name, exclude=("title", "b")), ROWS[:, [0, 2]]
        )
        with pytest.raises(InvalidInput, match="no column 'd'.* 'title', 'a', 'b', 'c'"):
            read(tmp_path / name, columns=("d",))


def test_a_list_column_beside_scalar_columns_needs_a_choice(read, tmp_path):
    pq.write_table(
        pa.table({"item": [1, 2, 3, 4], "vector": list(ROWS), "price": [5, 6, 7, 8]}),
        tmp_path / "m.parquet",
    )
    with pytest.raises(InvalidInput, match="list column 'vector' .*'item', 'price'"):
        read(tmp_path / "m.parquet")
    pq.write_table(pa.table({"one": list(ROWS), "two": list(ROWS)}), tmp_path / "lists.parquet")
    with pytest.raises(InvalidInput, match="list column 'one' .*'two'"):
        read(tmp_path / "lists.parquet", columns=("one", "two"))
    np.testing.assert_array_equal(read(tmp_path / "m.parquet", columns=("vector",)), ROWS)
    both = np.column_stack([ROWS, [5, 6, 7, 8]])
    np.testing.assert_array_equal(read(tmp_path / "m.parquet", columns=("price", "vector")), both)
    np.testing.assert_array_equal(
        read(tmp_path / "m.parquet", columns=("price", "vector"), ids=("item",)), both
    )


def save(path, names, rows):
    path.parent.mkdir(exist_ok=True)
    table = pa.table([rows[:, i] for i in range(rows.shape[1])], names=names)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_same_columns_in_another_order_are_aligned_by_name(read, tmp_path, suffix):
    save(tmp_path / "m" / f"part-0{suffix}", NAMES, ROWS)
    save(tmp_path / "m" / f"part-1{suffix}", ["c", "a", "b"], ROWS[:, [2, 0, 1]])
    np.testing.assert_array_equal(read(tmp_path / "m"), np.concatenate([ROWS, ROWS]))
    expected = peek(tmp_path / "m").features
    save(tmp_path / "q.parquet", ["b", "c", "a"], ROWS[:, [1, 2, 0]])
    np.testing.assert_array_equal(read(tmp_path / "q.parquet", expected), ROWS)
    pq.write_table(pa.table([[1], [2], [3]], names=["a", "b", "b"]), tmp_path / "twice.parquet")
    pq.write_table(pa.table([[2], [3], [1]], names=["b", "b", "a"]), tmp_path / "other.parquet")
    with pytest.raises(InvalidInput, match="another order.* 'b'"):
        read(tmp_path / "other.parquet", peek(tmp_path / "twice.parquet").features)


def test_other_columns_are_refused_with_the_names_that_differ(read, tmp_path):
    save(tmp_path / "m.parquet", NAMES, ROWS)
    save(tmp_path / "q.csv", ["a", "x", "c"], ROWS)
    expected = peek(tmp_path / "m.parquet").features
    said = "q.csv .*m.parquet: .*'b' .*'x'"
    with pytest.raises(InvalidInput, match=said):
        peek(tmp_path / "q.csv", expected=expected)
    with pytest.raises(InvalidInput, match=said):
        open_matrix(tmp_path / "q.csv", tmp_path / "scratch", expected=expected)


def test_columns_without_names_count_by_position(read, tmp_path):
    save(tmp_path / "m" / "0.csv", NAMES, ROWS)
    np.save(tmp_path / "m" / "1.npy", ROWS)
    np.savetxt(tmp_path / "m" / "2.csv", ROWS, delimiter=",")
    pq.write_table(pa.table({"vector": list(ROWS)}), tmp_path / "m" / "3.parquet")
    np.testing.assert_array_equal(read(tmp_path / "m"), np.concatenate([ROWS] * 4))


def test_several_columns_can_name_the_rows(tmp_path):
    # As a batch inference leaves them: a file, a row in it, and the prediction.
    pq.write_table(
        pa.table({"file": ["x", "x", "y", "y"], "row": [0, 1, 0, 1], "vector": list(ROWS)}),
        tmp_path / "m.parquet",
    )
    save_csv = pd.DataFrame(
        {"file": ["x", "x", "y", "y"], "row": ["00", "01", "00", "01"]} | {"a": ROWS[:, 0]}
    )
    save_csv.to_csv(tmp_path / "m.csv", index=False)
    for name, last in (("m.parquet", 1), ("m.csv", "01")):
        matrix = open_matrix(tmp_path / name, tmp_path / "scratch", Selection(ids=("file", "row")))
        ids = [one for batch in matrix.id_batches() for one in batch.to_pylist()]
        assert (len(ids), ids[-1]) == (4, {"file": "y", "row": last})


@pytest.mark.parametrize("permutation", [None, [1, 0]])
def test_arrows_tensors_are_the_features(read, tmp_path, permutation):
    tensors = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(tensors)
    if permutation:
        column = pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=permutation), column.storage
        )
        tensors = tensors.transpose(0, 2, 1)
    pq.write_table(pa.table({"image": column}), tmp_path / "m.parquet")
    assert peek(tmp_path / "m.parquet")[:2] == (4, 6)
    np.testing.assert_array_equal(read(tmp_path / "m.parquet"), tensors.reshape(4, 6))


@pytest.mark.parametrize("version", ["ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"])
def test_rays_tensors_are_the_features(read, tmp_path, version):
    # As Ray Data writes them: lists in storage, with the shape in the field's metadata.
    tensors = np.arange(24, dtype=np.float32).reshape(4, 6)
    kind = pa.large_list(pa.float32()) if version.endswith("v2") else pa.list_(pa.float32())
    metadata = {"ARROW:extension:name": version, "ARROW:extension:metadata": json.dumps([2, 3])}
    schema = pa.schema([pa.field("image", kind, metadata=metadata)])
    pq.write_table(pa.table([pa.array(list(tensors), kind)], schema=schema), tmp_path / "m.parquet")
    np.testing.assert_array_equal(read(tmp_path / "m.parquet"), tensors)


def test_a_matrix_is_described_with_its_columns(tmp_path):
    def described(name, **selection):
        chosen = Selection(**selection)
        matrix = open_matrix(tmp_path / name, tmp_path / "scratch", chosen)
        return describe(matrix, chosen, peek(tmp_path / name, chosen).features)

    wide = np.ones((3000, 32), dtype=np.float32)
    table = pd.DataFrame(wide, columns=[f"f{i}" for i in range(32)], index=np.arange(3000) * 2)
    table.assign(sku=table.index.map(str)).to_parquet(tmp_path / "wide.parquet")
    assert outputs("reference/similarity.md") == [
        f"matrix: {described('wide.parquet', ids=('sku',))}"
    ]
    frame(index=pd.Index([7, 9, 2, 4], name="key")).to_parquet(tmp_path / "m.parquet")
    assert described("m.parquet") == "4 rows x 3 columns (a, b, c), float64; left out: 'key'"
    assert (
        described("m.parquet", ids=("key",))
        == "4 rows x 3 columns (a, b, c), float64; named by 'key'"
    )
    pq.write_table(pa.table({"vector": list(ROWS), "price": [5, 6, 7, 8]}), tmp_path / "l.parquet")
    assert described("l.parquet", columns=("vector",)) == (
        "4 rows x 3 columns (the list column 'vector'), float64; left out: 'price'"
    )
    assert (
        described("l.parquet", columns=("vector", "price"))
        == "4 rows x 4 columns (vector[3], price), float64"
    )
    (tmp_path / "m.csv").write_text("1,2\n3,4\n")
    assert described("m.csv") == "2 rows x 2 columns (columns without names), float64"
    np.save(tmp_path / "m.npy", wide)
    assert described("m.npy") == "3,000 rows x 32 columns, float32"


def test_all_columns_of_text_are_named_at_once(read, tmp_path):
    frame().assign(sku="x", color="red").to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InvalidInput, match="'sku' .*string.*'color'"):
        read(tmp_path / "m.parquet")


ITEM = Selection(ids=("item",))
ID_ROWS = 5
ID_NAMES = [f"n°{i}" for i in range(ID_ROWS)]
VALUES = [
    pa.array([2**64 - 1 - i for i in range(ID_ROWS)], pa.uint64()),
    pa.array(ID_NAMES),
    pa.array(ID_NAMES).dictionary_encode(),
    pa.array([b"\xb0%02d" % i for i in range(ID_ROWS)], pa.binary(3)),
    pa.array([1_000_000 * i for i in range(ID_ROWS)]).cast(pa.timestamp("ns", "Europe/Berlin")),
    pa.array([True, False, False, True, False]),
    pa.array([decimal.Decimal(i) / 4 for i in range(ID_ROWS)], pa.decimal128(9, 2)),
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
    write_neighbors(tmp_path / NEIGHBORS, RowBlock(0, ID_ROWS), keys, 2, ids=ids)
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
        pq.write_table(pa.table({"x": np.ones(ID_ROWS), "item": ids}), path, row_group_size=group)
        ids = ids_of(path, path.parent)
        target = path.parent / NEIGHBORS
        digests.add(write_neighbors(target, RowBlock(0, ID_ROWS), keys, 2, ids=ids).sha256)
    assert len(digests) == 1
