"""Findings and their order; endpoint, region, credentials, instance types, quotas, the plan and the plugin."""

import pytest
from botocore.exceptions import NoCredentialsError

from raysm.core.request import Cluster, InstanceGroup
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.account.doctor.case import Intent, State, good
from raysm.features.account.doctor.checks import Check, carry_out
from tests.support import aws_account
from tests.support.sagemaker import SESSION, refusal


def types(account, name, **more):
    return account.findings(Intent(cluster=Cluster(name), **more))["instance type"][0]


def test_an_account_with_all_that_a_job_needs_is_good(account):
    findings = [finding for found in account.findings().values() for finding in found]
    assert {finding.state for finding in findings if finding.needed} == {State.GOOD}


def test_calls_that_go_elsewhere_are_said_with_the_variable_to_unset(account):
    account.clients["s3"] = SESSION.client(
        "s3", region_name="eu-west-1", endpoint_url="http://127.0.0.1:5000"
    )
    (finding,) = account.findings()["endpoint"]
    assert finding.state is State.BAD
    assert "s3 to http://127.0.0.1:5000" in finding.text
    assert "unset AWS_ENDPOINT_URL" in finding.remedy


@pytest.mark.parametrize(
    ("region", "state", "remedy"),
    [("eu-west-1", State.GOOD, ""), ("eu-wets-1", State.UNKNOWN, "check its name")],
)
def test_a_region_is_compared_with_those_that_boto3_knows(region, state, remedy):
    with aws_account.account(region=region) as made:
        (finding,) = made.findings()["region"]
    assert finding.state is state
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    "error", [NoCredentialsError(), refusal("ExpiredToken", "expired", "GetCallerIdentity")]
)
def test_credentials_that_are_no_good_are_said_with_how_to_get_them_and_nothing_else_asks(
    account, error
):
    account.fail("get_caller_identity", error)
    findings = account.findings()
    assert findings["credentials"][0].state is State.BAD
    assert "aws" in findings["credentials"][0].remedy
    assert findings["bucket"][0].text == "could not look without credentials"
    assert findings["instance type"][0].state is State.GOOD


def test_a_type_that_is_newer_than_botocore_is_unknown_and_a_slip_is_bad(account):
    assert types(account, "ml.m99i.48xlarge").state is State.UNKNOWN
    assert "boto3" in types(account, "ml.m99i.48xlarge").remedy
    assert types(account, "m5.large").state is State.BAD
    assert "ml.m5.large" in types(account, "m5.large").remedy


def quotas(account, cluster, **more):
    return account.findings(Intent(cluster=cluster, **more))["quota"]


def test_a_quota_is_compared_with_the_number_of_instances(account):
    assert quotas(account, Cluster("ml.m5.large", count=4))[0].state is State.GOOD
    (finding,) = quotas(account, Cluster("ml.m5.large", count=5))
    assert finding.state is State.BAD
    assert "request-service-quota-increase" in finding.remedy
    assert "--desired-value 5" in finding.remedy


def test_groups_of_one_type_are_counted_together_and_warm_pools_beside(account):
    groups = (InstanceGroup("a", "ml.m5.large", 2), InstanceGroup("b", "ml.m5.large", 3))
    assert quotas(account, Cluster(groups=groups))[0].state is State.BAD
    warm = quotas(account, Cluster("ml.m5.large", count=2, keep_alive_s=60))
    assert "ml.m5.large for training warm pool usage" in warm[1].text


def test_a_training_plan_has_its_capacity(account):
    plan = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"
    assert quotas(account, Cluster("ml.m5.large", training_plan=plan))[0].state is State.UNKNOWN


def test_of_a_choice_of_types_one_whose_quota_suffices_is_enough(account):
    account.quotas.applied["ml.c5.large for training job usage"] = 0
    account.quotas.applied["ml.g5.xlarge for training job usage"] = 2

    def states(*types):
        cluster = Cluster(types[0], count=2, alternatives=types[1:])
        return [(finding.state, finding.needed) for finding in quotas(account, cluster)]

    assert states("ml.c5.large") == [(State.BAD, True)]
    assert states("ml.c5.large", "ml.g5.xlarge") == [(State.BAD, False), (State.GOOD, True)]
    # Of one that nobody lists it is not known: it may do.
    assert states("ml.c5.large", "ml.p3.2xlarge") == [(State.BAD, False), (State.UNKNOWN, True)]
    account.quotas.applied["ml.g5.xlarge for training job usage"] = 1
    assert states("ml.c5.large", "ml.g5.xlarge") == [(State.BAD, True), (State.BAD, True)]


def plugin(folder, monkeypatch, version=None):
    """Put a session-manager-plugin of a version on the PATH, or none."""
    if version is not None:
        path = folder / "session-manager-plugin"
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=None)


@pytest.mark.parametrize(
    ("version", "said"), [(None, "not installed"), ("1.2.497.0", "has version 1.2.497.0")]
)
def test_without_a_new_enough_plugin_the_doctor_says_how_to_install_it(
    account, tmp_path, monkeypatch, version, said
):
    plugin(tmp_path, monkeypatch, version)
    (finding,) = account.findings()["tunnel"]
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert said in finding.text
    assert "brew install --cask session-manager-plugin" in finding.remedy


def carried_out(look):
    return list(carry_out(Check(name="thing", look=look), None))


def failing(error, *before):
    def look(case):
        yield from before
        raise error

    return look


@pytest.mark.parametrize(
    "code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"]
)
def test_a_denied_question_is_one_that_could_not_be_looked_at(code):
    (finding,) = carried_out(failing(ServiceError("get_role: no", code=code, remedy="add it")))
    assert finding.state is State.UNKNOWN
    assert "raysm doctor --policy user" in finding.remedy


def test_a_service_that_cannot_be_reached_leaves_what_was_seen_before():
    findings = carried_out(
        failing(ServiceError("get_role: timed out", is_transient=True), good("first"))
    )
    assert [finding.state for finding in findings] == [State.GOOD, State.UNKNOWN]
    assert "timed out" in findings[1].text
    (finding,) = carried_out(failing(InvalidRequest("the image is missing", remedy="give one")))
    assert (finding.state, finding.text, finding.remedy) == (
        State.BAD,
        "the image is missing",
        "give one",
    )
    # A page in an error is one line, and cut off.
    (finding,) = carried_out(failing(ServiceError("x: <html>\n<p>\n" + "word " * 200, code="500")))
    assert "\n" not in finding.text
    assert len(finding.text) < 350
