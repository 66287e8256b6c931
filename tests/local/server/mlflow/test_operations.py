"""Tracking servers by SageMaker's own operations, before anybody asks the MLflow behind them."""

import pytest

from raysm.contract.clock import Clock
from raysm.local.server.api_error import ApiError
from raysm.local.server.mlflow.operations import MlflowOperations
from raysm.local.server.mlflow.process import installed
from raysm.local.server.mlflow.servers import TrackingServers
from tests.support.api_requests import ROLE

pytest.importorskip("mlflow")

REGION = "eu-west-1"
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/"


@pytest.fixture
def servers(tmp_path):
    return TrackingServers(tmp_path, Clock())


@pytest.fixture
def answer(servers):
    operations = MlflowOperations(servers, lack=lambda: None)

    def ask(operation, **request):
        assert operations.has(operation, request)
        return operations.answer(operation, request, REGION)

    return ask


@pytest.fixture
def make(answer):
    def make(name, **fields):
        request = {"TrackingServerName": name, "ArtifactStoreUri": "s3://bucket/runs", "RoleArn": ROLE, **fields}
        return answer("CreateMlflowTrackingServer", **request)

    return make


def names(listed):
    return [item["TrackingServerName"] for item in listed["TrackingServerSummaries"]]


def test_one_is_created_described_and_deleted(make, answer):
    assert make("team", TrackingServerSize="Medium") == {"TrackingServerArn": f"{ARN}team"}
    described = answer("DescribeMlflowTrackingServer", TrackingServerName="team")
    told = ("TrackingServerArn", "TrackingServerStatus", "IsActive", "MlflowVersion", "ArtifactStoreUri", "RoleArn")
    assert [described[name] for name in told] == [
        f"{ARN}team",
        "Created",
        "Active",
        installed(),
        "s3://bucket/runs",
        ROLE,
    ]
    assert described["TrackingServerSize"] == "Medium"
    assert answer("DeleteMlflowTrackingServer", TrackingServerName="team") == {"TrackingServerArn": f"{ARN}team"}
    assert names(answer("ListMlflowTrackingServers")) == []


@pytest.mark.parametrize("operation", ["DescribeMlflowTrackingServer", "DeleteMlflowTrackingServer"])
def test_one_that_is_not_there_is_not_found_and_those_that_are_there_are_named(make, answer, operation):
    make("team")
    with pytest.raises(ApiError, match=f"there is no tracking server {ARN}nobody here; there are: {ARN}team") as told:
        answer(operation, TrackingServerName="nobody")
    assert told.value.code == "ResourceNotFound"


def test_a_name_that_is_taken_is_refused(make):
    make("team")
    with pytest.raises(ApiError, match="already exists") as told:
        make("team")
    assert told.value.code == "ResourceInUse"


def test_they_are_listed_by_name_in_pages_as_they_are_filtered(make, answer):
    for name in ("b", "c", "a"):
        make(name)
    page = answer("ListMlflowTrackingServers", SortBy="Name", SortOrder="Ascending", MaxResults=2)
    assert names(page) == ["a", "b"]
    more = answer("ListMlflowTrackingServers", SortBy="Name", SortOrder="Ascending", NextToken=page["NextToken"])
    assert (names(more), "NextToken" in more) == (["c"], False)
    assert names(answer("ListMlflowTrackingServers", TrackingServerStatus="Stopped")) == []
    assert names(answer("ListMlflowTrackingServers", CreatedBefore=1.0)) == []
    assert len(names(answer("ListMlflowTrackingServers", CreatedAfter=1.0, MlflowVersion=installed()))) == 3


def test_what_breaks_the_model_or_is_not_to_be_had_is_refused(make):
    with pytest.raises(ApiError, match="'trackingServerName' failed"):
        make("-team")
    with pytest.raises(ApiError, match=f"MlflowVersion 1.2.3 is not available here: .* it is {installed()}"):
        make("team", MlflowVersion="1.2.3")


def test_where_mlflow_is_not_installed_the_remedy_is_named(servers):
    operations = MlflowOperations(servers, lack=lambda: "needs MLflow: python3 -m pip install 'raysm[mlflow]'")
    request = {"TrackingServerName": "team", "ArtifactStoreUri": "s3://bucket/runs", "RoleArn": ROLE}
    with pytest.raises(ApiError, match="pip install"):
        operations.answer("CreateMlflowTrackingServer", request, REGION)
