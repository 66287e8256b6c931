"""Endpoint, region, credentials and instance types."""

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from raysm.client.doctor import CHECKS, Intent, State
from raysm.client.doctor.account import look_at_credentials, look_at_endpoints, look_at_region, look_at_types
from raysm.request import Cluster
from tests.support import aws_account
from tests.support.sagemaker import SESSION, refusal


def types(account, name, **more):
    return account.findings(Intent(cluster=Cluster(name), **more))["instance type"][0]


def test_an_account_with_all_that_a_job_needs_is_good(account):
    findings = [finding for found in account.findings().values() for finding in found]
    assert {finding.state for finding in findings if finding.needed} == {State.GOOD}


def test_calls_that_go_elsewhere_are_said_with_the_variable_to_unset(account):
    account.clients["s3"] = SESSION.client("s3", region_name="eu-west-1", endpoint_url="http://127.0.0.1:5000")
    (finding,) = account.findings()["endpoint"]
    assert finding.state is State.BAD
    assert "s3 to http://127.0.0.1:5000" in finding.text
    assert "unset AWS_ENDPOINT_URL" in finding.remedy


def test_a_vpc_endpoint_and_another_partition_are_aws(account):
    for url in ("https://vpce-1.sts.eu-west-1.vpce.amazonaws.com", "https://sts.cn-north-1.amazonaws.com.cn"):
        client = SESSION.client("sts", region_name="eu-west-1", endpoint_url=url)
        account.clients["sts"] = aws_account.Caller(client, aws_account.USER)
        assert account.findings()["endpoint"][0].state is State.GOOD


@pytest.mark.parametrize(
    ("region", "state", "remedy"),
    [
        ("eu-west-1", State.GOOD, ""),
        ("us-gov-west-1", State.GOOD, ""),
        ("eu_west_1", State.BAD, "eu-west-1"),
        ("eu-wets-1", State.UNKNOWN, "eu-west-1"),
    ],
)
def test_a_region_is_compared_with_those_that_boto3_knows(region, state, remedy):
    with aws_account.account(region=region) as made:
        (finding,) = made.findings()["region"]
    assert finding.state is state
    assert remedy in finding.remedy


@pytest.mark.parametrize("error", [NoCredentialsError(), refusal("ExpiredToken", "expired", "GetCallerIdentity")])
def test_credentials_that_are_no_good_are_said_with_how_to_get_them_and_nothing_else_asks(account, error):
    account.fail("get_caller_identity", error)
    findings = account.findings()
    assert findings["credentials"][0].state is State.BAD
    assert "aws" in findings["credentials"][0].remedy
    assert findings["bucket"][0].text == "could not look without credentials"
    assert findings["instance type"][0].state is State.GOOD


def test_a_network_that_is_down_says_nothing_of_the_credentials(account):
    account.fail("get_caller_identity", EndpointConnectionError(endpoint_url="https://sts.eu-west-1.amazonaws.com"))
    assert account.findings()["credentials"][0].state is State.UNKNOWN


def test_a_type_that_is_newer_than_botocore_is_unknown_and_a_slip_is_bad(account):
    assert types(account, "ml.m99i.48xlarge").state is State.UNKNOWN
    assert "boto3" in types(account, "ml.m99i.48xlarge").remedy
    assert types(account, "m5.large").state is State.BAD
    assert "ml.m5.large" in types(account, "m5.large").remedy


def test_a_type_is_looked_up_for_the_api_that_makes_the_job(account):
    assert types(account, "ml.trn1.32xlarge").state is State.GOOD
    assert types(account, "ml.trn1.32xlarge", kind="processing").state is State.UNKNOWN


def test_the_doctor_carries_these_checks_out():
    assert {look_at_credentials, look_at_endpoints, look_at_region, look_at_types} <= {check.look for check in CHECKS}


def test_each_type_of_a_choice_is_looked_at(account):
    cluster = Cluster("ml.m5.large", alternatives=("ml.m5.lage",))
    looked_at = account.findings(Intent(cluster=cluster))["instance type"]
    assert [(finding.state, "ml.m5.lage" in finding.text) for finding in looked_at] == [
        (State.GOOD, False),
        (State.BAD, True),
    ]
