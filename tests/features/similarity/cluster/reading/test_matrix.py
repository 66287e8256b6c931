"""A matrix of any format is read with the same rows; what is no matrix is refused with its file, row and column."""

import gzip
import mmap
import os
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.files import peek
from raysm.features.similarity.cluster.reading.matrix import open_matrix

ROWS = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)


def opened(path, tmp_path, id_column=None):
    return open_matrix(
        path, tmp_path / "scratch", Selection(() if id_column is None else (id_column,))
    )


def all_rows(matrix):
    return matrix.read(0, matrix.rows)


def all_ids(matrix):
    return [one for batch in matrix.id_batches() for one in batch.to_pylist()]


def refused(path, tmp_path, pattern, id_column=None):
    with pytest.raises(InvalidInput, match=pattern):
        opened(path, tmp_path, id_column)
    leftovers = list((tmp_path / "scratch").iterdir()) if (tmp_path / "scratch").exists() else []
    assert leftovers == []


def csv_text(rows, header=None):
    lines = [",".join(repr(float(value)) for value in row) for row in rows]
    return "\n".join(([header] if header else []) + lines) + "\n"


SAVE = {
    "c.npy": lambda path: np.save(path, ROWS),
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(ROWS)),
    "big-endian.npy": lambda path: np.save(path, ROWS.astype(">f4")),
    "dense.npz": lambda path: np.savez(path, rows=ROWS),
    "fortran.npz": lambda path: np.savez_compressed(path, rows=np.asfortranarray(ROWS)),
    "csr.npz": lambda path: scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(ROWS)),
    "m.csv": lambda path: path.write_text(csv_text(ROWS)),
    "M.CSV.GZ": lambda path: path.write_bytes(gzip.compress(csv_text(ROWS, "a,b,c,d").encode())),
    "m.parquet": lambda path: pq.write_table(
        pa.table({f"c{i}": ROWS[:, i] for i in range(4)}), path, row_group_size=7
    ),
    "lists.parquet": lambda path: pq.write_table(pa.table({"v": ROWS.tolist()}), path),
    "fixed.parquet": lambda path: pq.write_table(
        pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 4)}),
        path,
        row_group_size=11,
    ),
}


def saved(name, folder):
    folder.mkdir(exist_ok=True)
    SAVE[name](folder / name)
    return folder / name


@pytest.mark.parametrize("name", SAVE)
def test_every_format_brings_the_same_rows(name, tmp_path):
    path = saved(name, tmp_path)
    matrix = opened(path, tmp_path)
    assert (matrix.rows, matrix.columns) == (30, 4)
    assert np.array_equal(all_rows(matrix), ROWS)
    assert np.array_equal(matrix.read(11, 13), ROWS[11:13])
    assert peek(path)[:2] in [(30, 4), (None, 4), (30, None)]


@pytest.mark.parametrize("name", ["c.npy", "fortran.npy"])
def test_a_channel_that_maps_no_files_is_copied_and_read_as_it_was(name, tmp_path, monkeypatch):
    path = saved(name, tmp_path)
    channel = path.stat()

    def map_file(descriptor):
        is_channel = os.path.samestat(os.fstat(descriptor), channel)
        return None if is_channel else mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)

    monkeypatch.setattr("raysm.features.similarity.cluster.reading.arrays.map_file", map_file)
    for _ in range(2):
        np.testing.assert_array_equal(all_rows(opened(path, tmp_path)), ROWS)
    assert len(list((tmp_path / "scratch").iterdir())) == 1


def test_a_folder_is_one_matrix_in_natural_order_of_any_formats_and_types(tmp_path):
    folder = tmp_path / "matrix"
    for name, part in (
        ("c.npy", "part-2.npy"),
        ("csr.npz", "part-10.npz"),
        ("m.csv", "part-9.csv"),
    ):
        saved(name, folder).rename(folder / part)
    np.save(folder / "part-11.npy", np.arange(8, dtype=np.int16).reshape(2, 4))
    (folder / "_SUCCESS").touch()
    (folder / ".hidden").touch()
    matrix = opened(folder, tmp_path)
    expected = np.concatenate([ROWS, ROWS, ROWS, np.arange(8).reshape(2, 4)])
    assert matrix.names == ["part-2.npy", "part-9.csv", "part-10.npz", "part-11.npy"]
    assert matrix.dtype == np.float64
    assert np.array_equal(all_rows(matrix), expected)
    for start in range(0, 90, 4):
        assert np.array_equal(matrix.read(start, start + 3), expected[start : start + 3])
    assert peek(folder)[:2] == (None, 4)


def test_a_csr_matrix_of_another_byte_order_with_entries_given_twice_is_read(tmp_path):
    arrays = {"data": np.array([1.0, 2.0, 5.0], ">f4"), "indices": np.array([1, 1, 0], ">i4")}
    arrays["indptr"] = np.array([0, 2, 2, 3], ">i8")
    np.savez(tmp_path / "m.npz", format=np.array(b"csr"), shape=np.array([3, 2]), **arrays)
    found = opened(tmp_path / "m.npz", tmp_path)
    assert (found.sparse, found.dtype.isnative) == (True, True)
    assert all_rows(found).tolist() == [[0, 3], [0, 0], [5, 0]]
    assert np.array_equal(found.read_sparse(1, 3).dense(), [[0, 0], [5, 0]])


def test_ids_keep_their_digits_and_come_in_the_order_of_the_rows(tmp_path):
    (tmp_path / "m.csv").write_text('name,"x, really",y\n007,0.1,-1e-3\n"a,b",3,4\n')
    matrix = opened(tmp_path / "m.csv", tmp_path, "name")
    assert all_rows(matrix).tolist() == [[0.1, -0.001], [3, 4]]
    assert all_ids(matrix) == ["007", "a,b"]
    (tmp_path / "m").mkdir()
    for part in range(3):
        table = pa.table({"x": np.ones(4), "id": [part * 10 + i for i in range(4)]})
        pq.write_table(table, tmp_path / "m" / f"{part}.parquet", row_group_size=3)
    assert all_ids(opened(tmp_path / "m", tmp_path, "id")) == [
        0,
        1,
        2,
        3,
        10,
        11,
        12,
        13,
        20,
        21,
        22,
        23,
    ]


def test_a_folder_of_no_or_unknown_files_is_refused(tmp_path):
    refused(tmp_path / "nowhere", tmp_path, "nowhere does not exist")
    (tmp_path / "m").mkdir()
    refused(tmp_path / "m", tmp_path, "holds no files")
    (tmp_path / "m" / "notes.txt").write_text("x")
    refused(
        tmp_path / "m",
        tmp_path,
        r"notes.txt cannot be read as a matrix; supported are .npy, .npz, .csv, .csv.gz,",
    )


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv.gz", ".parquet"])
def test_empty_and_torn_files_are_refused(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.touch()
    refused(path, tmp_path, f"m{suffix} is empty")
    path.write_bytes(b"\x93NUMP" + b"\xff" * 20)
    refused(path, tmp_path, f"m{suffix}")
    with pytest.raises(InvalidInput, match=f"m{suffix}"):
        peek(path)


@pytest.mark.parametrize("name", ["c.npy", "dense.npz", "csr.npz", "M.CSV.GZ", "m.parquet"])
def test_truncated_files_are_refused(name, tmp_path):
    path = saved(name, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    refused(
        path,
        tmp_path,
        r"truncated: \(30, 4\) of float32 need 480 bytes" if name == "c.npy" else path.name,
    )


def test_python_objects_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    np.save(tmp_path / "m.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "m.npz", rows=np.array([[Trap()]], dtype=object))
    for name in ("m.npy", "m.npz"):
        refused(tmp_path / name, tmp_path, "Python objects, which raysm never unpickles")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("array", "pattern"),
    [
        (np.empty((0, 3)), "nothing to compute"),
        (np.empty((3, 0)), "nothing to compute"),
        (np.ones(3), "expected 2 dimensions"),
        (np.zeros((2, 2), "complex64"), "a matrix is of float16/32/64, integers or bool"),
        (np.zeros((2, 2), "i4,i4"), "a matrix is of float16/32/64, integers or bool"),
    ],
)
def test_arrays_that_are_no_matrix_of_real_numbers_are_refused(array, pattern, tmp_path):
    np.save(tmp_path / "m.npy", array)
    refused(tmp_path / "m.npy", tmp_path, pattern)
    with pytest.raises(InvalidInput, match=pattern):
        peek(tmp_path / "m.npy")


def test_an_archive_of_several_arrays_or_another_sparse_format_is_refused_with_the_remedy(tmp_path):
    np.savez(tmp_path / "m.npz", first=ROWS, second=ROWS)
    refused(
        tmp_path / "m.npz",
        tmp_path,
        "exactly one array, or a SciPy CSR matrix; it holds first, second",
    )
    scipy.sparse.save_npz(tmp_path / "csc.npz", scipy.sparse.csc_matrix(ROWS))
    refused(tmp_path / "csc.npz", tmp_path, r"format 'csc'; convert it with .tocsr\(\)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("indices", np.array([0, 9])),
        ("indices", np.array([0, -1])),
        ("indptr", np.array([0, 2, 1])),
        # Their differences wrap around to positive numbers.
        ("indptr", np.array([0, 2**63 - 1, 2])),
        ("data", [1.0]),
        ("shape", np.array([2, 2**40])),
        ("shape", np.array([-2, 2])),
        ("shape", np.array([2, 2, 2])),
    ],
)
def test_a_csr_matrix_whose_arrays_lie_is_refused(name, value, tmp_path):
    arrays = {
        "data": np.ones(2),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 2]),
        "shape": np.array([2, 2]),
    }
    np.savez(tmp_path / "m.npz", format=np.array(b"csr"), **(arrays | {name: value}))
    refused(tmp_path / "m.npz", tmp_path, "a (valid )?CSR matrix")


def with_header(path, text):
    """Write a .npy whose header is that text."""
    header = text.encode("latin1")
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 96)


@pytest.mark.parametrize("shape", [f"({2**33}, {2**33})", f"({2**60}, 16)", "(-2, -3)", "'12'"])
def test_an_npy_whose_header_has_an_impossible_shape_is_refused(shape, tmp_path):
    with_header(tmp_path / "m.npy", f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}")
    refused(tmp_path / "m.npy", tmp_path, "m.npy .*shape")
    with pytest.raises(InvalidInput, match="m.npy .*shape"):
        peek(tmp_path / "m.npy")
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.write(tmp_path / "m.npy", "rows.npy")
    refused(tmp_path / "m.npz", tmp_path, "(m.npz|rows.npy).*shape")


def test_files_of_different_widths_are_refused(tmp_path):
    (tmp_path / "m").mkdir()
    np.save(tmp_path / "m" / "a.npy", ROWS)
    np.save(tmp_path / "m" / "b.npy", ROWS[:, :3])
    refused(tmp_path / "m", tmp_path, "b.npy has 3 columns, a.npy has 4")
    with pytest.raises(InvalidInput, match="b.npy .* 3 columns, a.npy .* 4"):
        peek(tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a,b\n1,2\n3,x\n", r"'b': .*line 3: 'x'.*--id-column b"),
        ("a,b\n1,2\n3,\n", r"'b', line 3: .*missing.*exclude-columns b [^;]*$"),
        ("a,b,c\n1,,2\n3,,\n", r"'b', none .* 2 rows .*'c'"),
        ("a,b\n1,2\n3\n", r"Row #3: Expected 2 columns, got 1"),
        ("1,2\n3,NA\n", r"'column 1': .*line 2: 'NA'.*missing"),
        ("a,b\n1,2\n3,n/a\n", r"line 3: 'n/a'.*missing.*exclude-columns b [^;]*$"),
        ("\n", r"empty"),
        ("gr\xf6\xdfe,b\n1,2\n", "cannot be read as CSV"),
    ],
)
def test_a_csv_that_is_no_matrix_says_where(text, pattern, tmp_path):
    (tmp_path / "m.csv").write_text(text, encoding="latin1")
    refused(tmp_path / "m.csv", tmp_path, pattern)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_without_rows_is_refused_alone_and_joined_to_others_that_have_some(kind, tmp_path):
    (tmp_path / "m").mkdir()
    for name, values in (("0", []), ("1", [1.0, 3.0])):
        table = pa.table(
            {"key": pa.array(["r"] * len(values), pa.string()), "a": pa.array(values, pa.float64())}
        )
        write = pa.csv.write_csv if kind == "csv" else pq.write_table
        write(table, tmp_path / "m" / f"{name}.{kind}")
        if not values:
            with pytest.raises(InvalidInput, match="no rows"):
                opened(tmp_path / "m", tmp_path, "key")
    matrix = opened(tmp_path / "m", tmp_path, "key")
    assert (all_rows(matrix).tolist(), [rows for _, rows, _ in matrix.files]) == (
        [[1.0], [3.0]],
        [0, 2],
    )
    assert pa.concat_arrays(matrix.id_batches()).to_pylist() == ["r", "r"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_csv_whose_quoted_header_has_line_breaks_is_read(end, tmp_path):
    header = f'"a{end}b",b,"c{end}{end}d",d'
    text = csv_text(ROWS, header).replace("\n", end) if end != "\n" else csv_text(ROWS, header)
    (tmp_path / "m.csv").write_bytes(text.encode())
    assert np.array_equal(all_rows(opened(tmp_path / "m.csv", tmp_path)), ROWS)
    (tmp_path / "n.csv").write_bytes((text + f"1,2,x,4{end}").encode())
    refused_again = tmp_path / "again"
    refused_again.mkdir()
    refused(tmp_path / "n.csv", refused_again, r"column .c.*d.: not a number in line \d+: 'x'")


def test_an_id_column_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    refused(tmp_path / "m.csv", tmp_path, "no column 'name'; its columns are 'a', 'b'", "name")
    (tmp_path / "n.csv").write_text("1,2\n")
    refused(tmp_path / "n.csv", tmp_path, "has no header line", "name")
    refused(saved("c.npy", tmp_path), tmp_path, "save the rows as CSV or Parquet", "name")
    refused(
        saved("m.parquet", tmp_path), tmp_path, "its columns are 'c0', 'c1', 'c2', 'c3'", "name"
    )


def test_parquet_nulls_and_ragged_lists_say_where(tmp_path):
    pq.write_table(pa.table({"x": [1.0, None]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", tmp_path, "column 'x', row 1 .*: the value is missing")
    pq.write_table(pa.table({"v": [[1.0, 2.0], [1.0]]}), tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet", tmp_path, "column 'v', row 1: 1 numbers, not 2")
    pq.write_table(pa.table({"v": [[1.0, 2.0], [1.0, None]]}), tmp_path / "c.parquet")
    refused(tmp_path / "c.parquet", tmp_path, "column 'v', row 1: a number in the list is missing")
    pq.write_table(
        pa.table({"v": pa.array([[], []], pa.list_(pa.float32()))}), tmp_path / "d.parquet"
    )
    refused(tmp_path / "d.parquet", tmp_path, "row 0: the list is empty")


def test_parquet_columns_of_one_name_are_each_read(tmp_path):
    columns = [pa.array(ROWS[:, i]) for i in range(4)]
    pq.write_table(
        pa.Table.from_arrays(columns, names=["a", "b", "a", "b"]), tmp_path / "m.parquet"
    )
    assert np.array_equal(all_rows(opened(tmp_path / "m.parquet", tmp_path)), ROWS)
    with pytest.raises(InvalidInput, match="m.parquet .* 2 columns 'a'"):
        opened(tmp_path / "m.parquet", tmp_path / "other", "a")
