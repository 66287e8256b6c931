"""Requests that fail on their way, told with the words and in the protocols of AWS's services."""

import contextlib
from random import Random

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from raysm.local.scenario import Api, Scenario
from raysm.local.server.faults import Call, Faults
from raysm.local.server.validation import ApiError
from tests.support.hand_clock import HandClock
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import BUCKET, Server, training_request


def signed(service, **headers):
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential=a/20261122/us-east-1/{service}/aws4_request, x", **headers}


def call(service="sagemaker", operation="ListTags", **parameters):
    headers = signed(service, **{"X-Amz-Target": f"SageMaker.{operation}"})
    return Call.of(headers, lambda: b"", lambda: parameters)


def refusal(asked, seed=0, **switches):
    with pytest.raises(ApiError) as refused:
        Faults(Scenario(api=Api(**switches)), Random(seed)).refuse(asked)
    return refused.value


def test_a_call_is_known_by_its_signature_and_its_target_or_its_form():
    assert call().action == "sagemaker:ListTags"
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    asked = Call.of(signed("iam", **form), lambda: b"Action=GetRole&RoleName=x", dict)
    assert (asked.action, asked.in_json) == ("iam:GetRole", False)
    assert Call.of({}, lambda: b"", dict).action == ":"


def test_nothing_is_refused_by_default_and_no_answer_is_lost():
    faults = Faults(Scenario(api=Api()), Random(0))
    for _ in range(100):
        faults.refuse(call())
        assert not faults.loses_answer("us-east-1")


def test_an_action_that_is_denied_is_refused_each_time_and_no_other():
    error = refusal(call(), denied=("sagemaker:ListTags",))
    assert (error.code, error.status) == ("AccessDeniedException", 403)
    assert "is not authorized to perform: sagemaker:ListTags" in error.message
    Faults(Scenario(api=Api(denied=("sagemaker:ListTags",))), Random(0)).refuse(call(operation="AddTags"))


def test_an_account_may_refuse_jobs_that_can_be_looked_into():
    switches = {"denied": ("sagemaker:EnableRemoteDebug",)}
    error = refusal(call(operation="CreateTrainingJob", RemoteDebugConfig={"EnableRemoteDebug": True}), **switches)
    assert "CreateTrainingJob" in error.message
    Faults(Scenario(api=Api(**switches)), Random(0)).refuse(call(operation="CreateTrainingJob", RemoteDebugConfig=None))


def test_shares_of_requests_are_throttled_or_find_the_service_unavailable():
    faults, codes = Faults(Scenario(api=Api(throttled=0.2, unavailable=0.3)), Random(1)), []
    for _ in range(1000):
        try:
            faults.refuse(call())
        except ApiError as error:
            codes.append(error.code)
    assert 150 < codes.count("ThrottlingException") < 250
    assert 250 < codes.count("InternalFailure") < 350


def serving(home, scenario):
    home.mkdir()
    (home / "scenario.toml").write_text(scenario)
    return Server(home, "--instance-kind", "process", "--stop-grace-s", "2")


def test_boto3_hears_refusals_of_every_protocol_and_what_was_lost_was_done(tmp_path):
    denied = '["sagemaker:ListTags", "iam:GetRole"]'
    for number, (switches, attempt) in enumerate(((f"denied = {denied}", denials), ("answers_lost = 1.0", losses))):
        home = tmp_path / str(number)
        server = serving(home, f"[api]\n{switches}\n")
        try:
            attempt(server)
        finally:
            server.end()
        assert "Traceback" not in server.log()
        assert_nothing_left(home, server.process.pid)


def denials(server):
    with pytest.raises(ClientError, match=r"AccessDenied.*iam:GetRole"):
        server.client("iam").get_role(RoleName="x")
    with pytest.raises(ClientError, match=r"AccessDeniedException.*sagemaker:ListTags"):
        server.client("sagemaker").list_tags(ResourceArn="arn:aws:sagemaker:us-east-1:1:training-job/x")
    assert server.client("sagemaker").list_training_jobs()["TrainingJobSummaries"] == []


def losses(server):
    with pytest.raises(ConnectionClosedError):
        server.client("s3").create_bucket(Bucket=BUCKET)
    with pytest.raises(ConnectionClosedError):
        server.client("s3").put_object(Bucket=BUCKET, Key="k", Body=b"x" * 100_000)
    with pytest.raises(ConnectionClosedError):
        server.client("sagemaker").create_training_job(**training_request("lost", "sleep 100"))
    # Its own paths are no part of AWS.
    assert server.ask("GET", "/raysm/status")[1]["running"] == ["lost"]


def test_an_upload_that_is_refused_leaves_the_connection_usable(tmp_path):
    server = serving(tmp_path / "home", "seed = 5\n[api]\nthrottled = 0.5\n")
    try:
        s3 = server.client("s3")
        codes = [code_of(lambda: s3.create_bucket(Bucket=BUCKET)) for _ in range(8)]
        codes += [code_of(lambda: s3.put_object(Bucket=BUCKET, Key="k", Body=b"x" * 99)) for _ in range(32)]
        assert set(codes) == {"", "SlowDown"}
        assert 8 < codes.count("SlowDown") < 32
    finally:
        server.end()


def code_of(ask):
    try:
        ask()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return ""


def rated(**regions):
    scenario = Scenario(regions={name: Scenario(api=Api(**switches)) for name, switches in regions.items()})
    clock = HandClock()
    return Faults(scenario, Random(0), clock), clock


def in_region(region, operation="ListTrainingJobs"):
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=a/20261122/{region}/sagemaker/aws4_request, x",
        "X-Amz-Target": f"SageMaker.{operation}",
    }
    return Call.of(headers, lambda: b"", dict)


def test_of_a_rate_so_many_requests_a_second_are_answered_and_those_that_were_refused_count_for_nothing():
    faults, clock = rated(**{"eu-west-1": {"rates": {"ListTrainingJobs": 0.5}}})
    answered = 0
    for _ in range(1000):
        clock.pass_s(0.1)
        with contextlib.suppress(ApiError):
            faults.refuse(in_region("eu-west-1"))
            answered += 1
    # Never more than the rate and what is there at its beginning; less, by what a full bucket cannot take.
    assert 45 <= answered <= 51
