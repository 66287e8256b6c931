import gzip
import threading
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.arrays import Unmappable
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.files import matrix_files, peek
from raysm.workloads.similarity.reading.matrix import open_matrix

ROWS = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)


def opened(path, tmp_path, id_column=None):
    return open_matrix(path, tmp_path / "scratch", Selection(() if id_column is None else (id_column,)))


def all_rows(matrix):
    return matrix.read(0, matrix.rows)


def csv_text(rows, header=None):
    lines = [",".join(repr(float(value)) for value in row) for row in rows]
    return "\n".join(([header] if header else []) + lines) + "\n"


def as_npy(path):
    np.save(path.with_suffix(".npy"), ROWS)
    return path.with_suffix(".npy")


def as_fortran_npy(path):
    np.save(path.with_suffix(".npy"), np.asfortranarray(ROWS))
    return path.with_suffix(".npy")


def as_big_endian_npy(path):
    np.save(path.with_suffix(".npy"), ROWS.astype(">f4"))
    return path.with_suffix(".npy")


def as_npz(path):
    np.savez(path.with_suffix(".npz"), rows=ROWS)
    return path.with_suffix(".npz")


def as_compressed_fortran_npz(path):
    np.savez_compressed(path.with_suffix(".npz"), rows=np.asfortranarray(ROWS))
    return path.with_suffix(".npz")


def as_csr(path):
    scipy.sparse.save_npz(path.with_suffix(".npz"), scipy.sparse.csr_matrix(ROWS))
    return path.with_suffix(".npz")


def as_csv(path):
    path.with_suffix(".csv").write_text(csv_text(ROWS))
    return path.with_suffix(".csv")


def as_csv_gz(path):
    path = path.with_suffix(".csv.gz")
    path.write_bytes(gzip.compress(csv_text(ROWS, "a,b,c,d").encode()))
    return path


def as_parquet(path):
    pq.write_table(pa.table({f"c{i}": ROWS[:, i] for i in range(4)}), path.with_suffix(".parquet"), row_group_size=7)
    return path.with_suffix(".parquet")


def as_list_parquet(path):
    pq.write_table(pa.table({"v": ROWS.tolist()}, pa.schema([("v", pa.list_(pa.float32()))])), f"{path}.parquet")
    return path.with_suffix(".parquet")


def as_fixed_list_parquet(path):
    column = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 4)
    pq.write_table(pa.table({"v": column}), f"{path}.parquet", row_group_size=11)
    return path.with_suffix(".parquet")


FORMATS = [value for name, value in sorted(globals().items()) if name.startswith("as_")]


@pytest.mark.parametrize("save", FORMATS)
def test_every_format_brings_the_same_rows(save, tmp_path):
    path = save(tmp_path / "rows")
    matrix = opened(path, tmp_path)
    assert (matrix.rows, matrix.columns) == (30, 4)
    assert np.array_equal(all_rows(matrix), ROWS)
    assert np.array_equal(matrix.read(11, 13), ROWS[11:13])
    assert peek(path)[:2] in [(30, 4), (None, 4), (30, None)]


def test_an_npy_is_mapped_where_it_lies(tmp_path):
    matrix = opened(as_npy(tmp_path / "rows"), tmp_path)
    assert not (tmp_path / "scratch").exists()
    assert not all_rows(matrix).flags.writeable


def test_what_is_converted_is_converted_once(tmp_path):
    path = as_csv(tmp_path / "rows")
    opened(path, tmp_path)
    made = {file: file.stat().st_mtime_ns for file in (tmp_path / "scratch").rglob("*")}
    opened(path, tmp_path)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "scratch").rglob("*")} == made


def test_tasks_that_convert_at_the_same_time_do_not_disturb_each_other(tmp_path):
    path = as_csv(tmp_path / "rows")
    found = []
    threads = [threading.Thread(target=lambda: found.append(all_rows(opened(path, tmp_path)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(rows, ROWS) for rows in found)
    assert len(list((tmp_path / "scratch").iterdir())) == 1


def test_a_folder_is_one_matrix_in_natural_order(tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    for part, rows in (("part-2", ROWS[:5]), ("part-10", ROWS[5:6]), ("part-9", ROWS[6:])):
        np.save(folder / f"{part}.npy", rows)
    (folder / "_SUCCESS").touch()
    (folder / ".hidden").touch()
    matrix = opened(folder, tmp_path)
    expected = np.concatenate([ROWS[:5], ROWS[6:], ROWS[5:6]])
    assert matrix.names == ["part-2.npy", "part-9.npy", "part-10.npy"]
    assert np.array_equal(all_rows(matrix), expected)
    for start in range(0, 30, 4):
        assert np.array_equal(matrix.read(start, start + 2), expected[start : start + 2])
    assert peek(folder)[:2] == (30, 4)


def test_files_of_a_folder_may_have_different_formats_and_types(tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    as_csr(folder / "a")
    as_csv(folder / "b")
    np.save(folder / "c.npy", np.arange(8, dtype=np.int16).reshape(2, 4))
    matrix = opened(folder, tmp_path)
    assert matrix.dtype == np.float64
    expected = np.concatenate([ROWS, ROWS, np.arange(8).reshape(2, 4)])
    assert np.array_equal(all_rows(matrix), expected)
    assert np.array_equal(matrix.read(29, 61), expected[29:61])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint64, bool])
def test_types_stay_what_they_are(dtype, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((2, 2), dtype=dtype))
    assert opened(tmp_path / "rows.npy", tmp_path).dtype == dtype


def test_csr_entries_given_twice_are_summed(tmp_path):
    twice = scipy.sparse.csr_matrix((np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 2, 3])), (3, 2))
    scipy.sparse.save_npz(tmp_path / "m.npz", twice)
    matrix = opened(tmp_path / "m.npz", tmp_path)
    assert matrix.sparse
    assert all_rows(matrix).tolist() == [[0, 3], [0, 0], [5, 0]]


def test_a_csv_keeps_its_ids_as_text_and_its_digits(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text('name,"x, really",y\n007,0.1,-1e-3\n"a,b",3,4\n')
    matrix = opened(path, tmp_path, "name")
    assert all_rows(matrix).tolist() == [[0.1, -0.001], [3, 4]]
    assert all_ids(matrix) == ["007", "a,b"]


def all_ids(matrix):
    return [one for batch in matrix.id_batches() for one in batch.to_pylist()]


def test_ids_of_several_files_come_in_the_order_of_the_rows(tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    for part in range(3):
        ids = [part * 10 + i for i in range(4)]
        pq.write_table(pa.table({"x": np.ones(4), "id": ids}), folder / f"{part}.parquet", row_group_size=3)
    matrix = opened(folder, tmp_path, "id")
    assert all_ids(matrix) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def test_dictionary_ids_come_as_their_values(tmp_path):
    ids = pa.array(["a", "b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "id": ids}), tmp_path / "m.parquet")
    matrix = opened(tmp_path / "m.parquet", tmp_path, "id")
    assert all_ids(matrix) == ["a", "b", "a"]


def refused(path, tmp_path, pattern, id_column=None):
    with pytest.raises(InvalidInput, match=pattern):
        opened(path, tmp_path, id_column)
    leftovers = list((tmp_path / "scratch").iterdir()) if (tmp_path / "scratch").exists() else []
    assert leftovers == []


def test_a_missing_path_is_said_before_anything_starts(tmp_path):
    for ask in (peek, matrix_files):
        with pytest.raises(InvalidInput, match="nowhere does not exist"):
            ask(tmp_path / "nowhere")


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / "m").mkdir()
    refused(tmp_path / "m", tmp_path, "holds no files")


def test_an_unknown_file_is_named(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("x")
    refused(
        tmp_path / "m",
        tmp_path,
        r"notes.txt cannot be read as a matrix; supported are .npy, .npz, .csv, .csv.gz, .tsv, .tsv.gz, .parquet",
    )


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".csv.gz", ".parquet"])
def test_empty_and_torn_files_are_refused(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.touch()
    refused(path, tmp_path, f"m{suffix} is empty")
    path.write_bytes(b"\x93NUMP" + b"\xff" * 20)
    refused(path, tmp_path, f"m{suffix}")
    with pytest.raises(InvalidInput, match=f"m{suffix}"):
        peek(path)


@pytest.mark.parametrize("save", [as_npy, as_npz, as_csr, as_csv_gz, as_parquet])
def test_truncated_files_are_refused(save, tmp_path):
    path = save(tmp_path / "m")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    refused(path, tmp_path, path.name)


def test_a_truncated_npy_says_what_is_missing(tmp_path):
    path = as_npy(tmp_path / "m")
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, tmp_path, r"truncated: \(30, 4\) of float32 need 480 bytes, it has 380")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_matrices_without_rows_or_columns_are_refused(shape, tmp_path):
    np.save(tmp_path / "m.npy", np.empty(shape))
    refused(tmp_path / "m.npy", tmp_path, "nothing to compute")
    with pytest.raises(InvalidInput, match="nothing to compute"):
        peek(tmp_path / "m.npy")


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), ()])
def test_arrays_of_other_dimensions_are_refused(shape, tmp_path):
    np.save(tmp_path / "m.npy", np.ones(shape))
    refused(tmp_path / "m.npy", tmp_path, "expected 2 dimensions")


def test_python_objects_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    np.save(tmp_path / "m.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "m.npz", rows=np.array([[Trap()]], dtype=object))
    for name in ("m.npy", "m.npz"):
        refused(tmp_path / name, tmp_path, "Python objects, which raysm never unpickles")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("dtype", ["complex64", "S3", "datetime64[s]", "f16", "i4,i4"])
def test_types_that_are_no_real_numbers_are_refused(dtype, tmp_path):
    np.save(tmp_path / "m.npy", np.zeros((2, 2), dtype=dtype))
    refused(tmp_path / "m.npy", tmp_path, "a matrix is of float16/32/64, integers or bool")


def test_an_archive_of_several_arrays_is_refused_with_their_names(tmp_path):
    np.savez(tmp_path / "m.npz", first=ROWS, second=ROWS)
    refused(tmp_path / "m.npz", tmp_path, "exactly one array, or a SciPy CSR matrix; it holds first, second")


def test_other_sparse_formats_say_how_to_convert_them(tmp_path):
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.csc_matrix(ROWS))
    refused(tmp_path / "m.npz", tmp_path, r"format 'csc'; convert it with .tocsr\(\)")


@pytest.mark.parametrize(
    ("name", "value"),
    [("indices", np.array([0, 9])), ("indices", np.array([0, -1])), ("indptr", np.array([0, 2, 1])), ("data", [1.0])],
)
def test_a_csr_matrix_whose_arrays_lie_is_refused(name, value, tmp_path):
    arrays = {"data": np.ones(2), "indices": np.array([0, 1]), "indptr": np.array([0, 1, 2])} | {name: value}
    np.savez(tmp_path / "m.npz", format=np.array(b"csr"), shape=np.array([2, 2]), **arrays)
    refused(tmp_path / "m.npz", tmp_path, "not a valid CSR matrix")


def test_files_of_different_widths_are_refused(tmp_path):
    (tmp_path / "m").mkdir()
    np.save(tmp_path / "m" / "a.npy", ROWS)
    np.save(tmp_path / "m" / "b.npy", ROWS[:, :3])
    refused(tmp_path / "m", tmp_path, "b.npy has 3 columns, a.npy has 4")
    with pytest.raises(InvalidInput, match=r"b.npy has 3 columns, a.npy has 4"):
        peek(tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            "a,b\n1,2\n3,x\n",
            r"column 'b', row 1, line 3: 'x' is not a number; if it names the rows, give --id-column b \(in",
        ),
        ("a,b\n1,2\n3,\n", r"column 'b', row 1, line 3: the field is empty"),
        ("a,b\n1,2\n3\n", r"row 1, line 3, has 1 fields, the first line has 2"),
        ("1,2\n3,4,5\n", r"row 1, line 2, has 3 fields, the first line has 2"),
        ("1,2\n3,NA\n", r"row 1, line 2: 'NA' is not a number"),
        ("\n", r"empty"),
    ],
)
def test_a_csv_that_is_no_matrix_says_where(text, pattern, tmp_path):
    (tmp_path / "m.csv").write_text(text)
    refused(tmp_path / "m.csv", tmp_path, pattern)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_without_rows_is_refused_alone_and_joined_to_others_that_have_some(kind, tmp_path):
    (tmp_path / "m").mkdir()
    for name, values in (("0", []), ("1", [1.0, 3.0])):
        table = pa.table({"key": pa.array(["r"] * len(values), pa.string()), "a": pa.array(values, pa.float64())})
        write = pa.csv.write_csv if kind == "csv" else pq.write_table
        write(table, tmp_path / "m" / f"{name}.{kind}")
        if not values:
            with pytest.raises(InvalidInput, match="m hold no rows; there is nothing to compute"):
                opened(tmp_path / "m", tmp_path, "key")
    matrix = opened(tmp_path / "m", tmp_path, "key")
    assert (all_rows(matrix).tolist(), [rows for _, rows, _ in matrix.files]) == ([[1.0], [3.0]], [0, 2])
    assert pa.concat_arrays(matrix.id_batches()).to_pylist() == ["r", "r"]


def test_a_table_of_lists_without_rows_has_no_width_and_is_named(tmp_path):
    pq.write_table(pa.table({"v": pa.array([], pa.list_(pa.float32()))}), tmp_path / "m.parquet")
    refused(tmp_path / "m.parquet", tmp_path, "m.parquet has no rows, and so no list")


def with_header(path, text, data=b"\0" * 96):
    """Write a .npy whose header is that text."""
    header = text.encode("latin1")
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)


@pytest.mark.parametrize(
    "shape",
    [
        f"({2**33}, {2**33})",
        f"({2**32}, {2**32})",
        f"({2**60}, 16)",
        f"(0, {2**62})",
        f"({10**40}, 3)",
        "(-2, -3)",
        "(1e999, 3)",
        "(4.0, 3)",
        "(True, 3)",
        "'12'",
        "12",
        "[4, 3]",
    ],
)
def test_an_npy_whose_header_has_an_impossible_shape_is_refused(shape, tmp_path):
    with_header(tmp_path / "m.npy", f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}")
    refused(tmp_path / "m.npy", tmp_path, "m.npy .*(shape|torn)")
    with pytest.raises(InvalidInput, match="m.npy .*(shape|torn)"):
        peek(tmp_path / "m.npy")
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.write(tmp_path / "m.npy", "rows.npy")
    refused(tmp_path / "m.npz", tmp_path, "(m.npz|rows.npy).*(shape|torn)")


@pytest.mark.parametrize("order", ["'False'", "0", "None"])
def test_an_npy_whose_order_is_no_bool_is_refused_and_not_read_transposed(order, tmp_path):
    with_header(tmp_path / "m.npy", f"{{'descr': '<f8', 'fortran_order': {order}, 'shape': (4, 3)}}")
    refused(tmp_path / "m.npy", tmp_path, f"'fortran_order' is {order}, neither True nor False")


def test_a_torn_npy_is_refused_before_anything_is_sent(tmp_path):
    path = as_npy(tmp_path / "m")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInput, match="truncated"):
        peek(path)


@pytest.mark.parametrize("columns", [2**62, 2**40])
def test_a_csr_matrix_of_more_columns_than_can_be_numbered_is_refused(columns, tmp_path):
    arrays = {"data": np.ones(2), "indices": np.array([0, 1]), "indptr": np.array([0, 1, 2])}
    np.savez(tmp_path / "m.npz", format=np.array(b"csr"), shape=np.array([2, columns]), **arrays)
    refused(tmp_path / "m.npz", tmp_path, f"m.npz has {columns} columns; a CSR matrix has at most {2**31}")
    with pytest.raises(InvalidInput, match=f"m.npz has {columns} columns"):
        peek(tmp_path / "m.npz")


def test_a_csr_matrix_of_another_byte_order_is_read(tmp_path):
    matrix = scipy.sparse.csr_matrix(ROWS)
    arrays = {"data": matrix.data.astype(">f4"), "indices": matrix.indices.astype(">i4")}
    arrays["indptr"] = matrix.indptr.astype(">i8")
    np.savez(tmp_path / "m.npz", format=np.array(b"csr"), shape=np.array([30, 4]), **arrays)
    found = opened(tmp_path / "m.npz", tmp_path)
    assert found.dtype.isnative
    assert np.array_equal(all_rows(found), ROWS)
    assert np.array_equal(found.read_sparse(3, 20).dense(), ROWS[3:20])


@pytest.mark.parametrize("name", ["M.CSV.GZ", "m.csv.GZ", "m.Csv.gz"])
def test_a_compressed_csv_is_known_by_its_suffix_however_it_is_written(name, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(csv_text(ROWS, "a,b,c,d").encode()))
    assert np.array_equal(all_rows(opened(tmp_path / name, tmp_path)), ROWS)
    assert peek(tmp_path / name)[:2] == (None, 4)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_csv_whose_quoted_header_has_line_breaks_is_read(end, tmp_path):
    header = f'"a{end}b",b,"c{end}{end}d",d'
    text = csv_text(ROWS, header).replace("\n", end) if end != "\n" else csv_text(ROWS, header)
    (tmp_path / "m.csv").write_bytes(text.encode())
    assert np.array_equal(all_rows(opened(tmp_path / "m.csv", tmp_path)), ROWS)
    (tmp_path / "n.csv").write_bytes((text + f"1,2,x,4{end}").encode())
    refused_again = tmp_path / "again"
    refused_again.mkdir()
    refused(tmp_path / "n.csv", refused_again, r"row 30, line \d+: 'x' is not a number")


def test_a_csv_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "m.csv").write_bytes("größe,b\n1,2\n".encode("latin1"))
    refused(tmp_path / "m.csv", tmp_path, "cannot be read as CSV")


def test_an_id_column_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    refused(tmp_path / "m.csv", tmp_path, "no column 'name'; its columns are 'a', 'b'", "name")
    (tmp_path / "n.csv").write_text("1,2\n")
    refused(tmp_path / "n.csv", tmp_path, "has no header line", "name")
    refused(as_npy(tmp_path / "m"), tmp_path, "save the rows as CSV or Parquet", "name")
    refused(as_parquet(tmp_path / "m"), tmp_path, "its columns are 'c0', 'c1', 'c2', 'c3'", "name")


def test_parquet_columns_that_are_no_numbers_are_named(tmp_path):
    pq.write_table(pa.table({"x": [1.0], "city": ["Ulm"]}), tmp_path / "m.parquet")
    refused(
        tmp_path / "m.parquet",
        tmp_path,
        "column 'city' holds string, not numbers; if it names the rows, give --id-column city ",
    )


def test_parquet_nulls_and_ragged_lists_say_where(tmp_path):
    pq.write_table(pa.table({"x": [1.0, None]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", tmp_path, "column 'x', row 1: the value is missing")
    pq.write_table(pa.table({"v": [[1.0, 2.0], [1.0]]}), tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet", tmp_path, "column 'v', row 1: the list has 1 numbers, those before have 2")
    pq.write_table(pa.table({"v": [[1.0, 2.0], [1.0, None]]}), tmp_path / "c.parquet")
    refused(tmp_path / "c.parquet", tmp_path, "column 'v', row 1: a number in the list is missing")
    pq.write_table(pa.table({"v": pa.array([[], []], pa.list_(pa.float32()))}), tmp_path / "d.parquet")
    refused(tmp_path / "d.parquet", tmp_path, "row 0: the list is empty")


def test_a_long_csv_streams_in_several_batches(tmp_path):
    rows = np.random.default_rng(1).integers(0, 100, (120_000, 25))
    lines = "\n".join(",".join(map(str, row)) for row in rows.tolist())
    (tmp_path / "m.csv").write_text(lines + "\n")
    assert np.array_equal(all_rows(opened(tmp_path / "m.csv", tmp_path)), rows)
    (tmp_path / "m.csv").write_text(lines + "\n" + ",".join(["oops"] * 25) + "\n")
    with pytest.raises(InvalidInput, match="row 120000, line 120001: 'oops' is not a number"):
        opened(tmp_path / "m.csv", tmp_path)


def test_parquet_columns_of_one_name_are_each_read(tmp_path):
    columns = [pa.array(ROWS[:, i]) for i in range(4)]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "b", "a", "b"]), tmp_path / "m.parquet")
    assert np.array_equal(all_rows(opened(tmp_path / "m.parquet", tmp_path)), ROWS)
    with pytest.raises(InvalidInput, match=r"m.parquet has 2 columns 'a'; rename all but one of them"):
        opened(tmp_path / "m.parquet", tmp_path / "other", "a")


def test_numbered_columns_are_a_header(tmp_path):
    (tmp_path / "m.csv").write_text(csv_text(ROWS, "0,1,2,3"))
    assert np.array_equal(all_rows(opened(tmp_path / "m.csv", tmp_path)), ROWS)
    (tmp_path / "one.csv").write_text("0\n1\n")
    assert opened(tmp_path / "one.csv", tmp_path).rows == 2


@pytest.mark.parametrize("other", [pa.int32(), pa.string()])
def test_ids_of_different_types_are_refused_before_any_file_is_converted(tmp_path, other):
    folder = tmp_path / "matrix"
    folder.mkdir()
    for number, kind in enumerate([pa.int64(), other]):
        ids = pa.array(["1", "2"]).cast(kind)
        if kind == pa.string() and number:
            (folder / "1.csv").write_text("id,x\n1,1\n2,1\n")
        else:
            pq.write_table(pa.table({"id": ids, "x": np.ones(2)}), folder / f"{number}.parquet")
    said = "text" if other == pa.string() else "int32"
    with pytest.raises(InvalidInput, match=rf"the ids \('id'\) of 1\.\w+ are {said}, those of 0.parquet are int64"):
        opened(folder, tmp_path, "id")
    assert not (tmp_path / "scratch").exists()


def unmappable(file):
    raise Unmappable(f"{file} lies where no file can be mapped")


@pytest.mark.parametrize("saved", [as_npy, as_fortran_npy, as_big_endian_npy])
def test_a_channel_that_maps_no_files_is_copied_to_the_scratch_folder_and_read_as_it_was(saved, tmp_path):
    (tmp_path / "channel").mkdir()
    path = saved(tmp_path / "channel" / "m")
    matrix = open_matrix(path, tmp_path / "scratch", mapped=unmappable)
    np.testing.assert_array_equal(all_rows(matrix), ROWS)
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    again = open_matrix(path, tmp_path / "scratch", mapped=unmappable)
    np.testing.assert_array_equal(all_rows(again), ROWS)
