"""Rows of a Parquet file."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from raysm.errors import InvalidRequest
from raysm.grid.rows.parquet_file import ParquetFile


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "drives.parquet"
    parquet.write_table(pa.table({"key": ["a", "b"], "count": pa.array([2, None], pa.int64())}), path)
    return path


def test_values_keep_their_types(file):
    table = ParquetFile.of(file).read(9)
    assert table.columns == ("key", "count")
    assert table.rows == [("a", 2), ("b", None)]
    assert table.where(0).endswith("drives.parquet, row 1")


def test_more_rows_than_may_be_are_refused_by_the_footer(file):
    with pytest.raises(InvalidRequest, match="has more than 1 rows"):
        ParquetFile.of(str(file)).read(1)


def test_what_is_no_parquet_is_refused_by_its_name(tmp_path):
    (tmp_path / "text.parquet").write_text("key,lr\n")
    for name in ("text.parquet", "none.parquet"):
        with pytest.raises(InvalidRequest, match=rf"{name} cannot be read as Parquet"):
            ParquetFile.of(tmp_path / name).read(9)
    assert ParquetFile.of(tmp_path / "a.pq").description == {"file": str(tmp_path / "a.pq")}
