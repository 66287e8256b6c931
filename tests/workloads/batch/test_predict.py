"""The predictor, and one piece's part of the result."""

from datetime import datetime

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from raysm.errors import InvalidRequest
from raysm.workloads.batch.formats import Span
from raysm.workloads.batch.predict import predictor_of, table_of
from raysm.workloads.batch.tables import Parquet

BATCH = {"file": np.array(["a", "b"], dtype=object), "x": np.array([1.0, 2.0]), "id": np.array([7, 8])}


class Counting:
    made = 0

    def __init__(self, by):
        type(self).made += 1
        self.by, self.number = by, type(self).made

    def __call__(self, batch):
        return {"y": batch["x"] * self.by, "made": np.full(len(batch["x"]), self.number)}


def times(batch, factor):
    return {"y": batch["x"] * factor}


def pickled(folder, *call):
    path = folder / "function.pkl"
    path.write_bytes(cloudpickle.dumps(call))
    return path


def table(predicted, keep=()):
    return table_of(BATCH, predicted, ("file",), keep, "model")


def test_a_class_is_made_once_in_a_process_and_a_function_called_with_its_arguments(tmp_path):
    path = pickled(tmp_path, Counting, (), {"by": 3})
    numbers = [predictor_of(path, "model")(dict(BATCH))["made"][0] for _ in range(3)]
    assert len(set(numbers)) == 1
    (tmp_path / "other").mkdir()
    function = predictor_of(pickled(tmp_path / "other", times, (), {"factor": 5}), "model")
    assert function(dict(BATCH))["y"].tolist() == [5.0, 10.0]


def test_predictions_stand_beside_the_keys_and_what_is_kept():
    found = table({"y": [0.1, 0.2], "label": ["cat", "dog"]}, keep=("id",))
    assert found.to_pydict() == {"file": ["a", "b"], "id": [7, 8], "y": [0.1, 0.2], "label": ["cat", "dog"]}


KEPT = [
    pytest.param([7, None, 2**53 + 1], pa.int64(), pa.int64(), id="whole numbers"),
    pytest.param([1, 2, None], pa.uint8(), pa.uint8(), id="small ones"),
    pytest.param(["a", "b", None], pa.string(), pa.string(), id="texts"),
    pytest.param(["a", "b", None], pa.large_string(), pa.string(), id="large texts"),
    pytest.param(["a", "b", None], pa.dictionary(pa.int32(), pa.string()), pa.string(), id="categories"),
    pytest.param([True, False, None], pa.bool_(), pa.bool_(), id="truth values"),
    pytest.param(
        [datetime(2026, 1, 1), datetime(2026, 1, 2), None], pa.timestamp("ms"), pa.timestamp("ms"), id="times"
    ),
]


@pytest.mark.parametrize(("values", "of_file", "written"), KEPT)
def test_a_kept_column_has_what_is_missing_and_is_of_one_type_in_all_batches(tmp_path, values, of_file, written):
    pq.write_table(pa.table({"id": pa.array(values, of_file)}), tmp_path / "a.parquet")
    columns = Parquet().unified([Parquet().scan(tmp_path, "a.parquet", {})], ())
    batches = Parquet(columns).batches(tmp_path, Span(files=("a.parquet",)), 2, 1)
    tables = [
        table_of(batch, {"y": np.zeros(len(batch["id"]))}, ("file", "row"), ("id",), "model") for batch in batches
    ]
    found = pa.concat_tables(tables)
    assert (found.schema.field("id").type, found.column("id").to_pylist()) == (written, values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.zeros((2, 3), dtype=np.float32), pa.list_(pa.float32(), 3)),
        (np.zeros((2, 3, 4)), pa.fixed_shape_tensor(pa.float64(), (3, 4))),
        (torch.zeros(2, 3, requires_grad=True), pa.list_(pa.float32(), 3)),
        (np.array(["a", "b"]), pa.string()),
        ([{"a": 1}, {"a": 2}], pa.struct({"a": pa.int64()})),
        ([[1], [2, 3]], pa.list_(pa.int64())),
        (np.array([1, 2], dtype=np.float16), pa.float16()),
    ],
)
def test_what_a_predictor_returns_has_the_type_that_readers_expect(values, kind):
    assert table({"y": values}).schema.field("y").type == kind


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (np.zeros(2), "must return predictions by column, .* returned a ndarray"),
        ({}, "must return predictions by column"),
        ({"y": [1.0]}, "returned 1 predictions in 'y' for a batch of 2 records"),
        ({"y": 1.0}, "returned one value in 'y' for a whole batch"),
        ({"file": ["x", "y"]}, "returned the column 'file', which the records already have"),
        ({"y": [1, "a"]}, "the column 'y' of model cannot be written to Parquet"),
    ],
)
def test_what_is_no_prediction_for_each_record_is_refused(predicted, message):
    with pytest.raises(InvalidRequest, match=message):
        table(predicted)
