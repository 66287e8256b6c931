"""A batch inference as the user writes it, what is refused, and its predictions."""

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.core.client.results.result import read_as
from raysm.core.client.source.package import package_of
from raysm.core.protocol.result import ResultFile
from raysm.errors import InvalidRequest
from raysm.features.batch.result import Batch, BatchResult
from tests.support.client_jobs import manifest


class Model:
    def __init__(self, weights, scale=2.0):
        self.weights, self.scale = weights, scale

    def __call__(self, batch):
        return {"y": batch["x"] * self.scale}


class NoModel:
    pass


def doubled(batch, factor=2):
    return {"y": batch["x"] * factor}


def test_a_class_travels_with_the_arguments_that_it_is_made_with():
    batch = raysm.Batch(Model, batch_size=32, arguments={"weights": "w.pt"}, keep=["id"])
    workload = batch.workload()
    assert (workload.name.endswith("Model"), workload.batch_size, workload.keep) == (
        True,
        32,
        ("id",),
    )
    assert workload.parameters == {"weights": "w.pt", "scale": 2.0}
    kind, args, kwargs = pickle.loads(package_of(batch).pickled)
    assert (kind.__name__, args, kwargs) == ("Model", (), {"weights": "w.pt"})


def test_a_function_is_told_apart_by_its_own_arguments_not_by_the_batch():
    assert Batch(doubled, batch_size=1, arguments={"factor": 3}).workload().parameters == {
        "factor": 3
    }
    batch = Batch(doubled, batch_size=1)
    assert batch.title() == "doubled"
    assert "doubled, batch_size=1" in repr(batch)


@pytest.mark.parametrize(
    ("predictor", "arguments", "message"),
    [
        (Model, {}, "Model __init__.*'weights'"),
        (NoModel, {}, r"NoModel.*__call__\(self, batch\)"),
        (Model("w"), {"x": 1}, "Model.*'x'"),
        ("model.pt", {}, "got 'model.pt'"),
    ],
)
def test_a_predictor_that_cannot_be_called_so_is_refused_before_anything_is_sent(
    predictor, arguments, message
):
    with pytest.raises(InvalidRequest, match=message):
        Batch(predictor, batch_size=4, arguments=arguments)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"zip": "text"}, "'zip'.*'text'"),
        (["zip"], r"types.*\['zip'\]"),
    ],
)
def test_a_type_that_there_is_not_is_refused_before_anything_is_sent(types, message):
    with pytest.raises(InvalidRequest, match=message):
        Batch(doubled, batch_size=4, types=types)


def test_an_option_with_a_typing_error_is_refused_with_the_one_that_is_meant():
    with pytest.raises(InvalidRequest, match="'keeps'.* keep"):
        Batch(doubled, batch_size=4, keeps=["id"])


@pytest.fixture
def result(tmp_path):
    files = []
    for number, rows in enumerate([3, 2]):
        name = f"predictions/part-{number:06}.parquet"
        (tmp_path / "predictions").mkdir(exist_ok=True)
        pq.write_table(pa.table({"row": [number] * rows, "y": [0.5] * rows}), tmp_path / name)
        size = (tmp_path / name).stat().st_size
        files.append(
            ResultFile(
                name=name, shape=(rows,), bytes=size, sha256="0", how_to_read="", units=("rows",)
            )
        )
    return read_as(tmp_path, manifest(*files, workload={"kind": "batch"}))


def test_the_parts_are_one_table_in_the_order_of_the_input(result):
    assert isinstance(result, BatchResult)
    assert result.rows == 5
    assert result.table()["row"].to_pylist() == [0, 0, 0, 1, 1]
    assert result.table("predictions/part-000001.parquet").num_rows == 2
    assert [part["row"].to_pylist() for part in result.tables()] == [[0, 0, 0], [1, 1]]
    assert list(result.to_frame().columns) == ["row", "y"]


def test_an_input_without_records_has_no_table(tmp_path):
    with pytest.raises(InvalidRequest, match="no predictions"):
        BatchResult(tmp_path, manifest()).table()
