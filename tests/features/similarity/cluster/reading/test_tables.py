import gzip
import hashlib
import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.reading.arrays import map_array
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.files import digest, peek
from raysm.features.similarity.cluster.reading.tables import describe_table, read_table


@pytest.mark.parametrize(
    ("line", "header_lines", "names"),
    [
        ("a,b", 1, ("a", "b")),
        ("1,x", 1, ("1", "x")),
        ("0,1", 1, ("0", "1")),
        ("0,2", 0, ("column 0", "column 1")),
        ("0", 0, ("column 0",)),
    ],
)
def test_a_first_line_is_a_header_unless_all_of_it_are_numbers_or_it_counts_the_columns(
    line, header_lines, names, tmp_path
):
    (tmp_path / "m.csv").write_text(f"{line}\n5,6\n")
    table = describe_table(tmp_path / "m.csv")
    assert (table.header_lines, table.names) == (header_lines, names)


@pytest.mark.parametrize("text", ["a;b\n1;2\n", "a\tb\n1\t2\n"])
@pytest.mark.parametrize("id_column", [None, "a"])
def test_a_delimiter_that_is_no_comma_is_explained(tmp_path, text, id_column):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(InvalidInput, match="delimiter .*','"):
        list(read_table(tmp_path / "m.csv", Selection(() if id_column is None else (id_column,))))


def test_quoted_values_with_line_breaks_may_lie_anywhere_in_a_large_file(tmp_path):
    rows = 300_000
    lines = "".join(f'"name\n{n}",{n % 7},{n % 11}\n' for n in range(rows))
    (tmp_path / "m.csv").write_text(f"id,a,b\n{lines}")
    batches = list(read_table(tmp_path / "m.csv", Selection(("id",))))
    assert len(batches) > 1
    assert sum(len(batch.rows) for batch in batches) == rows
    assert batches[-1].ids[-1].as_py() == f"name\n{rows - 1}"
    assert batches[-1].rows[-1].tolist() == [(rows - 1) % 7, (rows - 1) % 11]


def with_header(text, version=1, data=b""):
    encoded = text.encode("utf-8" if version == 3 else "latin1")
    size = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes([version, 0]) + size + encoded + data


@pytest.mark.parametrize(
    "content",
    [
        b"row,1\n",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        with_header("__import__('os').getcwd()"),
        with_header("(" * 5000),
    ],
)
def test_what_is_no_matrix_is_refused_in_one_line_with_its_name(tmp_path, content):
    (tmp_path / "m.npy").write_bytes(content)
    with pytest.raises(InvalidInput, match="m.npy") as raised:
        map_array(tmp_path / "m.npy")
    assert "not a valid .npy file" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_digest_of_one_file_is_that_of_its_bytes(tmp_path):
    path = tmp_path / "m.npy"
    path.write_bytes(b"rows")
    assert digest(path).result(timeout=90) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_digest_of_a_folder_depends_on_names_and_bytes(tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    np.save(folder / "a.npy", np.eye(3))
    np.save(folder / "b.npy", np.eye(3))
    first = digest(folder).result(timeout=90)
    (folder / "b.npy").rename(folder / "c.npy")
    assert digest(folder).result(timeout=90) != first


PEAK_MB = 190
"""Above what the imports take; the long lines of these tests have 200 MB."""

CHECK = """
import resource, sys
from pathlib import Path
from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.reading.tables import read_table

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(read_table(Path(sys.argv[1])))
except InvalidInput as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def checked(path):
    """Return what reading a file says, and its peak memory in MB."""
    command = [sys.executable, "-c", CHECK, str(path)]
    *said, peak = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return " ".join(said), int(peak) // (1024 if sys.platform == "darwin" else 1)


@pytest.mark.parametrize("before", [b"", b"a,b\n1,2\n"], ids=["first line", "later line"])
def test_a_line_of_hundreds_of_megabytes_is_refused_without_reading_it(tmp_path, before):
    with gzip.open(tmp_path / "m.csv.gz", "wb", compresslevel=1) as file:
        file.write(before)
        for _ in range(200):
            file.write(b"1" * (1 << 20))
    said, peak_mb = checked(tmp_path / "m.csv.gz")
    assert "m.csv.gz: a line is too long" in said
    assert peak_mb < PEAK_MB


def test_a_table_with_too_many_columns_is_refused(tmp_path):
    (tmp_path / "m.csv").write_text(",".join(["1.5"] * 100_001))
    with pytest.raises(InvalidInput, match="m.csv .* 100,000 columns"):
        peek(tmp_path / "m.csv")
    schema = pa.schema([pa.field(f"f{i}", pa.int8()) for i in range(100_001)])
    with pq.ParquetWriter(tmp_path / "m.parquet", schema):
        pass
    with pytest.raises(InvalidInput, match="m.parquet .* 100,000 columns"):
        peek(tmp_path / "m.parquet")


def test_a_list_of_too_many_numbers_is_refused_by_the_metadata(tmp_path):
    values = pa.array(np.zeros(20_000_000, dtype=np.int8))
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    pq.write_table(pa.table({"v": lists}), tmp_path / "m.parquet")
    with pytest.raises(InvalidInput, match="20,000,000 .* 16,777,216"):
        peek(tmp_path / "m.parquet")
