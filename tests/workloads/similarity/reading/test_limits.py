"""Small files that would take much memory are refused before they are read."""

import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.files import peek

PEAK_MB = 190
"""Above what the imports take; the long lines of these tests have 200 MB."""

CHECK = """
import resource, sys
from pathlib import Path
from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.tables import read_table

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
    *said, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return " ".join(said), int(peak) // (1024 if sys.platform == "darwin" else 1)


@pytest.mark.parametrize("before", [b"", b"a,b\n1,2\n"], ids=["first line", "later line"])
def test_a_line_of_hundreds_of_megabytes_is_refused_without_reading_it(tmp_path, before):
    with gzip.open(tmp_path / "m.csv.gz", "wb", compresslevel=1) as file:
        file.write(before)
        for _ in range(200):
            file.write(b"1" * (1 << 20))
    said, peak_mb = checked(tmp_path / "m.csv.gz")
    assert "m.csv.gz: a line is too long to be read; write one row on each line" in said
    assert peak_mb < PEAK_MB


def test_a_table_with_too_many_columns_is_refused(tmp_path):
    (tmp_path / "m.csv").write_text(",".join(["1.5"] * 100_001))
    with pytest.raises(InvalidInput, match="m.csv has more than 100,000 columns"):
        peek(tmp_path / "m.csv")
    schema = pa.schema([pa.field(f"f{i}", pa.int8()) for i in range(100_001)])
    with pq.ParquetWriter(tmp_path / "m.parquet", schema):
        pass
    with pytest.raises(InvalidInput, match="m.parquet has more than 100,000 columns"):
        peek(tmp_path / "m.parquet")


def test_a_list_of_too_many_numbers_is_refused_by_the_metadata(tmp_path):
    values = pa.array(np.zeros(20_000_000, dtype=np.int8))
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    pq.write_table(pa.table({"v": lists}), tmp_path / "m.parquet")
    with pytest.raises(InvalidInput, match="holds 20,000,000 numbers in 1 lists; .* at most 16,777,216"):
        peek(tmp_path / "m.parquet")
