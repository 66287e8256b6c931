"""Tests of ``raysm.request.external``."""

import dataclasses

import pytest

from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Script
from raysm.request.external import CodeArtifact, check_index, check_tracking

ARN = "arn:aws:codeartifact:eu-west-1:123456789012:repository/our-domain/our.repo_1"


def test_a_repository_of_codeartifact_is_known_by_its_arn():
    repository = CodeArtifact.of(ARN)
    assert dataclasses.astuple(repository)[1:] == ("eu-west-1", "123456789012", "our-domain", "our.repo_1")
    assert CodeArtifact.of("https://pip.example/simple") is None


@pytest.mark.parametrize(
    "index", [ARN, "https://pip.example/simple", "http://10.0.0.9:8080/simple/", ARN.replace("aws:", "aws-cn:")]
)
def test_addresses_and_arns_pass(index):
    check_index(index)


@pytest.mark.parametrize(
    "index", ["pip.example", "ftp://host/simple", "https://", "https://a b/simple", ARN + "/more", ""]
)
def test_anything_else_is_refused_with_both_forms(index):
    with pytest.raises(InvalidRequest, match="https://pip.example/simple, or the ARN of a CodeArtifact repository"):
        check_index(index)


def test_an_address_with_a_password_is_refused_and_the_password_not_repeated():
    with pytest.raises(InvalidRequest, match="holds a user or a password") as caught:
        check_index("https://me:hunter2@host/simple")
    assert "hunter2" not in str(caught.value)


MLFLOW = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"


@pytest.mark.parametrize("tracking", ["mlruns", "sqlite:///", "postgresql://x"])
def test_what_is_none_is_refused_with_those_that_there_are(tracking):
    with pytest.raises(InvalidRequest, match=r"give sqlite:///mlflow.db, http://.*, arn:aws:sagemaker"):
        check_tracking(tracking)


@pytest.mark.parametrize("tracking", ["https://me:hunter2@mlflow.example", "postgresql://me:hunter2@db.example/mlflow"])
def test_a_password_in_it_is_refused_and_not_repeated(tracking):
    with pytest.raises(InvalidRequest, match="tracking has a password in it") as raised:
        check_tracking(tracking)
    assert "hunter2" not in str(raised.value)


def test_a_request_knows_who_writes_and_what_that_takes():
    def request(tracking):
        return JobRequest(name="digits", workload=Script("train.py"), tracking=tracking)

    assert [request(uri).is_tracked_by_head for uri in (None, "sqlite:///m.db", "http://m:5000", MLFLOW)] == [
        False,
        False,
        True,
        True,
    ]
    assert request(MLFLOW).packages == ("mlflow", "sagemaker_mlflow")
    assert request("sqlite:///m.db").packages == ()
    with pytest.raises(InvalidRequest, match="is not a place"):
        request("mlruns")
