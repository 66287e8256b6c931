"""What can be asked of the similarity."""

import dataclasses
import json

import pytest

from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest
from raysm.request.codec import from_json, to_json
from raysm.request.options import decisive
from raysm.request.similarity import Similarity


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of"),
        ({"top_k": 1, "full": True}, "exactly one of"),
        ({"top_k": 0}, "at least 1, got 0"),
        ({"threshold": 1.5}, "-1 to 1"),
        ({"threshold": float("nan")}, "-1 to 1"),
        ({"top_k": 1, "dtype": "float16"}, "dtype belongs to full"),
        ({"full": True, "dtype": "int8"}, "'float32' or 'float16', got 'int8'"),
        ({"top_k": 1, "block_rows": 0}, "block_rows must be at least 1"),
        ({"threshold": 0.5, "recall": 0.9}, "recall belongs to top_k"),
        ({"full": True, "recall": 0.9}, "recall belongs to top_k"),
        ({"top_k": 3, "recall": 0.9, "parts": 2}, "parts=2 belongs to exact results; with recall there is one file"),
        ({"top_k": 1, "recall": 0.0}, "above 0 and at most 0.999, got 0.0; without it the search is exact"),
        ({"top_k": 1, "recall": 1.0}, "above 0 and at most 0.999, got 1.0"),
        ({"top_k": 1, "recall": float("nan")}, "above 0 and at most 0.999, got nan"),
    ],
)
def test_a_similarity_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        Similarity(**fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_k", True), ("top_k", 1.5), ("recall", "0.9"), ("recall", True), ("threshold", "0.5"), ("block_rows", 2.0)],
)
def test_a_number_of_another_type_is_refused_with_its_value(name, value):
    fields = {"top_k": 1, name: value}
    with pytest.raises(InvalidRequest, match=f"{name} must be a number, got {value!r}"):
        Similarity(**fields)


def asked(channel, count, **fields):
    return JobRequest(
        name="a-job",
        workload=Similarity(top_k=3, **fields),
        cluster=Cluster(count=count),
        inputs={"matrix": Input("s3://b/k"), "queries": channel},
    )


def test_a_recall_of_rows_that_are_shared_out_is_refused_before_anything_is_sent():
    sharded = Input("s3://b/q", distribution="ShardedByS3Key")
    with pytest.raises(InvalidRequest, match="'queries' is sharded; make it FullyReplicated, or drop recall"):
        asked(sharded, 2, recall=0.9)
    # One instance has all rows, however they are shared out; and without a recall they may lie anywhere.
    asked(sharded, 1, recall=0.9)
    asked(sharded, 2)


def test_a_recall_makes_another_result_and_comes_back_from_json():
    exact, near = (asked(Input("s3://b/q"), 2, **fields) for fields in ({}, {"recall": 0.9}))
    assert decisive(exact) != decisive(near)
    assert from_json(JobRequest, to_json(near), "request").workload == Similarity(top_k=3, recall=0.9)


def test_the_size_of_a_task_does_not_make_another_result_of_the_same_request():
    asked = JobRequest(
        name="a-job", workload=Similarity(top_k=3), cluster=Cluster(), inputs={"matrix": Input("s3://b/k")}
    )
    cut, other = (
        dataclasses.replace(asked, workload=it) for it in (Similarity(top_k=3, block_rows=7), Similarity(top_k=4))
    )
    assert decisive(cut) == decisive(asked) != decisive(other)


@pytest.mark.parametrize("id_column", ["sku", ("file", "row"), None])
def test_one_or_several_id_columns_come_back_from_json(id_column):
    workload = Similarity(top_k=1, id_column=id_column, exclude_columns=["note"])
    assert from_json(Similarity, json.loads(json.dumps(to_json(workload)))) == workload


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"columns": ["a"], "exclude_columns": ["b"]}, "give columns or exclude_columns, not both"),
        ({"columns": []}, "columns is empty; name the features"),
        ({"id_column": "a", "columns": ["a", "b"]}, "the column 'a' is named twice"),
        ({"columns": [1]}, r"columns must be a list of column names, got \[1\]"),
        ({"id_column": 3}, "id_column must be a list of column names, got 3"),
    ],
)
def test_columns_that_exclude_each_other_are_refused(fields, said):
    with pytest.raises(InvalidRequest, match=said):
        Similarity(top_k=1, **fields)
