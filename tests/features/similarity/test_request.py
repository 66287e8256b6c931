"""What can be asked of the similarity."""

import dataclasses
import json

import pytest

from raysm.core.request import Cluster, Input, JobRequest
from raysm.core.request.codec import from_json, to_json
from raysm.core.request.options import decisive
from raysm.errors import InvalidRequest
from raysm.features.similarity.request import Similarity


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one"),
        ({"top_k": 0}, "top_k.*got 0"),
        ({"threshold": 1.5}, r"threshold 1\.5"),
        ({"top_k": 1, "dtype": "float16"}, "dtype.*full"),
        ({"full": True, "dtype": "int8"}, "dtype.*'int8'"),
    ],
)
def test_a_similarity_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        Similarity(**fields)


def test_both_top_k_and_a_threshold_are_refused_with_the_way_to_have_both():
    with pytest.raises(InvalidRequest) as raised:
        Similarity(top_k=10, threshold=0.9)
    assert "result.pairs()" in raised.value.remedy
    with pytest.raises(InvalidRequest) as raised:
        Similarity(top_k=10, full=True)
    assert not raised.value.remedy


def test_the_size_of_a_task_does_not_make_another_result_of_the_same_request():
    asked = JobRequest(
        name="a-job",
        workload=Similarity(top_k=3),
        cluster=Cluster(),
        inputs={"matrix": Input("s3://b/k")},
    )
    cut, other = (
        dataclasses.replace(asked, workload=it)
        for it in (Similarity(top_k=3, block_rows=7), Similarity(top_k=4))
    )
    assert decisive(cut) == decisive(asked) != decisive(other)


@pytest.mark.parametrize("id_column", ["sku", ("file", "row"), None])
def test_one_or_several_id_columns_come_back_from_json(id_column):
    workload = Similarity(top_k=1, id_column=id_column, exclude_columns=["note"])
    assert from_json(Similarity, json.loads(json.dumps(to_json(workload)))) == workload


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"columns": ["a"], "exclude_columns": ["b"]}, "columns or exclude_columns"),
        ({"columns": []}, "columns is empty"),
        ({"id_column": "a", "columns": ["a", "b"]}, "'a' twice"),
        ({"columns": [1]}, r"columns.*\[1\]"),
    ],
)
def test_columns_that_exclude_each_other_are_refused(fields, said):
    with pytest.raises(InvalidRequest, match=said):
        Similarity(top_k=1, **fields)
