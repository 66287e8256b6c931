"""Predictions as whoever asked for them reads them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.client.results.batch import BatchResult
from raysm.client.results.result import read_as
from raysm.contract.result import Manifest, ResultFile
from raysm.errors import InvalidRequest


def manifest(*files):
    return Manifest(
        job="score",
        workload={"kind": "batch"},
        inputs={},
        files=files,
        versions={},
        instances=("algo-1",),
        phases_s={},
    )


@pytest.fixture
def result(tmp_path):
    files = []
    for number, rows in enumerate([3, 2]):
        name = f"predictions/part-{number:06}.parquet"
        (tmp_path / "predictions").mkdir(exist_ok=True)
        pq.write_table(pa.table({"row": [number] * rows, "y": [0.5] * rows}), tmp_path / name)
        size = (tmp_path / name).stat().st_size
        files.append(ResultFile(name=name, shape=(rows,), bytes=size, sha256="0", how_to_read="", units=("rows",)))
    return read_as(tmp_path, manifest(*files))


def test_the_parts_are_one_table_in_the_order_of_the_input(result):
    assert isinstance(result, BatchResult)
    assert result.rows == 5
    assert result.table()["row"].to_pylist() == [0, 0, 0, 1, 1]
    assert result.table("predictions/part-000001.parquet").num_rows == 2
    assert list(result.to_frame().columns) == ["row", "y"]


def test_it_says_what_it_has_in_one_line(result):
    assert "5 predictions in 2 parts" in repr(result)
    assert "part-000000" not in repr(result)


def test_an_input_without_records_has_no_table(tmp_path):
    with pytest.raises(InvalidRequest, match="has no predictions: its input had no records"):
        BatchResult(tmp_path, manifest()).table()
