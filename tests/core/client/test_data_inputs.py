"""Arrays, tensors and data frames as inputs of a job, without a file of the user's."""

import os
import time
import urllib.parse
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from raysm.core.client.storage.inputs import KEPT_S, save
from raysm.core.client.submit import prepare
from raysm.core.request import Local
from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.reading.tables import read_table
from raysm.features.similarity.request import Similarity

torch = pytest.importorskip("torch")

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
COLUMNS = {"a": ROWS[:, 0], "b": ROWS[:, 1], "c": ROWS[:, 2]}


@pytest.fixture
def sent(tmp_path):
    """Return the file that a channel of a prepared job is."""

    def sent(workload=None, channel="matrix", **inputs):
        prepared = prepare(
            workload or Similarity(top_k=1), on=Local(home=str(tmp_path / "home")), inputs=inputs
        )
        return Path(urllib.parse.urlsplit(prepared.request.inputs[channel].uri).path)

    return sent


@pytest.mark.parametrize(
    "matrix",
    [ROWS, np.asfortranarray(ROWS), torch.tensor(ROWS), torch.tensor(ROWS, requires_grad=True)],
    ids=["array", "array in Fortran's order", "tensor", "tensor with gradients"],
)
def test_an_array_or_a_tensor_is_the_matrix(sent, matrix):
    np.testing.assert_array_equal(np.load(sent(matrix=matrix)), ROWS)


def test_what_stands_for_a_path_such_as_a_result_is_that_path(sent, tmp_path):
    np.save(tmp_path / "matrix.npy", ROWS)

    class Folder:
        def __fspath__(self):
            return str(tmp_path)

    assert sent(matrix=Folder()) == tmp_path


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS)], ids=["pandas", "polars"]
)
def test_a_data_frame_is_the_matrix_with_its_columns(sent, frame):
    table = pq.read_table(sent(matrix=frame))
    assert table.schema.names == ["a", "b", "c"]
    np.testing.assert_array_equal(np.column_stack([table[name] for name in "abc"]), ROWS)


def test_an_error_names_the_data_frame_and_not_the_file_that_raysm_saved(sent):
    with pytest.raises(InvalidInput, match="'matrix': column 'a', row 1 .*missing"):
        sent(matrix=pd.DataFrame({"a": [1.0, None], "b": [2.0, 3.0]}))
    # The client looks at the first rows only.
    late = pd.DataFrame({"a": np.random.default_rng(0).random(200_000)}, dtype="Float64")
    late.iloc[-1, 0] = None
    with pytest.raises(InvalidInput, match="'matrix': column 'a', row 199999 .*missing"):
        list(read_table(sent(matrix=late)))


def test_tensors_of_types_that_numpy_lacks_are_float32(sent):
    found = np.load(sent(matrix=torch.tensor(ROWS).bfloat16()))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, ROWS)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(COLUMNS)[1:],
        pd.DataFrame(COLUMNS, index=list("wxyz")),
        pd.DataFrame(
            COLUMNS, index=pd.MultiIndex.from_product([["x", "y"], [1, 2]], names=["file", "row"])
        ),
    ],
    ids=["slice", "names", "levels"],
)
def test_a_pandas_index_that_carries_information_is_refused_with_both_remedies(sent, frame):
    with pytest.raises(InvalidInput, match="'matrix'.*index.*--id-column") as error:
        sent(matrix=frame)
    assert "reset_index(drop=True)" in str(error.value)
    sent(matrix=frame.reset_index(drop=True))


@pytest.mark.parametrize("names", [("key",), ("file", "row")])
def test_a_pandas_index_that_is_an_id_column_names_the_rows(sent, names):
    frame = pd.DataFrame(
        COLUMNS, index=pd.MultiIndex.from_arrays([list("wxyz")] * len(names), names=names)
    )
    table = pq.read_table(sent(Similarity(top_k=1, id_column=names), matrix=frame))
    assert table.schema.names == [*names, "a", "b", "c"]
    assert table[names[0]].to_pylist() == list("wxyz")


def test_a_matrix_and_queries_in_memory_are_compared_by_name(sent):
    matrix = pd.DataFrame(COLUMNS)
    sent(matrix=matrix, queries=pl.DataFrame(COLUMNS)[["c", "a", "b"]])
    with pytest.raises(InvalidInput, match="'c'.*'x'"):
        sent(matrix=matrix, queries=matrix.rename(columns={"c": "x"}))


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (np.ones(3), r"\(3,\)"),
        (np.array([[None, 1]]), "array of object"),
        (np.ma.masked_less(ROWS, 3), "masked"),
        (torch.empty(3, 3, device="meta"), "tensor"),
        (
            pd.DataFrame(ROWS, columns=pd.MultiIndex.from_product([["x"], [1, 2, 3]])),
            "several levels",
        ),
    ],
)
def test_data_that_make_no_matrix_are_refused(sent, matrix, said):
    with pytest.raises(InvalidInput, match=said):
        sent(matrix=matrix)


def test_the_same_data_are_the_same_file_and_old_files_are_removed(tmp_path):
    first = save("matrix", ROWS, tmp_path)
    assert save("matrix", ROWS.copy(), tmp_path) == first
    other = save("matrix", ROWS + 1, tmp_path)
    assert other != first
    long_ago = time.time() - KEPT_S - 1
    os.utime(first.parent, (long_ago, long_ago))
    save("matrix", ROWS + 1, tmp_path)
    assert not first.exists()
    assert sorted((tmp_path / "inputs").iterdir()) == [other.parent]
