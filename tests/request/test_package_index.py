"""Where packages come from, as a user says it."""

import dataclasses

import pytest

from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Script, Security
from raysm.request.package_index import CodeArtifact, check_index

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


def test_an_address_that_nobody_can_read_is_refused_and_not_repeated():
    with pytest.raises(InvalidRequest, match="pip_index is not an address: Invalid IPv6 URL") as caught:
        check_index("https://me:hunter2@[::1/simple")
    assert "hunter2" not in str(caught.value)


def test_an_address_with_a_password_is_refused_and_the_password_not_repeated():
    with pytest.raises(InvalidRequest, match="holds a user or a password") as caught:
        check_index("https://me:hunter2@host/simple")
    assert "hunter2" not in str(caught.value)


def test_an_index_beside_isolation_is_refused():
    with pytest.raises(InvalidRequest, match="pip_index cannot be reached with security.isolation"):
        JobRequest(name="a", workload=Script("a.py"), pip_index=ARN, security=Security(isolation=True))
