"""Batch's REST, by botocore's own model."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.model import check, operation_of


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("POST", "/v1/submitjob", "SubmitJob"),
        ("GET", "/v1/tags/arn:aws:batch:us-east-1:1:job/x", "ListTagsForResource"),
        ("DELETE", "/v1/tags/arn:aws:batch:us-east-1:1:job/x", "UntagResource"),
        ("GET", "/v1/submitjob", ""),
        ("POST", "/elsewhere", ""),
    ],
)
def test_a_method_and_a_path_are_an_operation(method, path, operation):
    assert operation_of(method, path) == operation


def test_a_request_that_breaks_the_model_is_refused_with_all_that_is_wrong():
    with pytest.raises(ApiError) as refused:
        check("SubmitJob", {"jobName": 7, "jobQueue": "q"})
    assert refused.value.code == "ClientException"
    assert "jobDefinition" in refused.value.message
    assert "'jobName' must be a string" in refused.value.message


def test_a_request_that_keeps_to_the_model_passes():
    check("SubmitJob", {"jobName": "a", "jobQueue": "q", "jobDefinition": "d", "arrayProperties": {"size": 2}})
