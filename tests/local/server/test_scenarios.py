"""What a scenario does to jobs and to requests, over HTTP with boto3."""

import contextlib
import json
from random import Random

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from raysm.core.client.job.handle import attach
from raysm.core.client.service import Service
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Local
from raysm.errors import ServiceError
from raysm.local.scenario import Api, Scenario
from raysm.local.server.faults import Call, Faults
from raysm.local.server.validation import ApiError, check, check_rules
from tests.support.api_requests import training_parameters
from tests.support.echo import ECHO
from tests.support.hand_clock import HandClock
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import (
    BUCKET,
    TRAINING_LOGS,
    Server,
    port_of,
    spot,
    statuses,
    training_request,
    until,
)

WAIT = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"


@contextlib.contextmanager
def playing(home, scenario, kind="process"):
    """Yield a server whose home has a scenario."""
    home.mkdir()
    (home / "scenario.toml").write_text(scenario)
    server = Server(home, "--instance-kind", kind, "--cores", "4", "--stop-grace-s", "2")
    try:
        server.make_bucket()
        yield server
        server.end()
        assert "Traceback" not in server.log()
    finally:
        server.kill()
    assert_nothing_left(home, server.process.pid)


SCENARIO = """
seed = 5
[ssm]
permitted = false
[market]
spot_saving = 0.5
[regions.us-west-1.capacity]
internal_errors = 1.0
[regions.us-west-2.capacity]
insufficient = 1.0
[regions.eu-west-1.capacity]
start_delay_s = 1000.0
[regions.eu-west-2.capacity]
interrupted_at = ["step 3"]
[regions.eu-west-3.api]
denied = ["sagemaker:EnableRemoteDebug", "sagemaker:ListTags"]
[regions.us-east-1.api]
denied = ["iam:GetRole"]
[regions.ca-central-1.api]
answers_lost = 1.0
[regions.sa-east-1.api]
throttled = 0.5
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with playing(tmp_path_factory.mktemp("scenario") / "home", SCENARIO) as running:
        yield running


class Region:
    """One region of the server."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.sm = server.client_in("sagemaker", name)

    def train(self, name, script, **fields):
        self.sm.create_training_job(**training_request(name, script, **fields))

    def ended(self, name):
        def is_final():
            self.server.ask("GET", f"/raysm/jobs/{self.name}/{name}/end/10")
            return self.describe(name)["TrainingJobStatus"] in ("Completed", "Failed", "Stopped")

        until(is_final)
        return self.describe(name)

    def describe(self, name):
        return self.sm.describe_training_job(TrainingJobName=name)

    def streams(self, job):
        """Return the names of a job's streams and the messages in all of them."""
        logs = self.server.client_in("logs", self.name)
        listed = logs.describe_log_streams(
            logGroupName=TRAINING_LOGS, logStreamNamePrefix=f"{job}/"
        )["logStreams"]
        names = [stream["logStreamName"] for stream in listed]
        events = logs.filter_log_events(logGroupName=TRAINING_LOGS, logStreamNames=names)["events"]
        return names, [event["message"] for event in events]


def test_a_job_that_aws_breaks_off_is_started_again_as_often_as_its_strategy_says(server):
    region = Region(server, "us-west-1")
    region.train("again", WAIT, RetryStrategy={"MaximumRetryAttempts": 2})
    region.train("once", WAIT)
    words = "InternalServerError: We encountered an internal error. Please try again."
    for name, attempts in (("again", 3), ("once", 1)):
        job = region.ended(name)
        assert (job["TrainingJobStatus"], job["FailureReason"]) == ("Failed", words)
        assert statuses(job).count("Training") == attempts
        assert statuses(job).count("Restarting") == attempts - 1


def test_a_job_for_which_there_is_no_capacity_fails_in_aws_words(server):
    region = Region(server, "us-west-2")
    region.train("none", "exit 0")
    job = region.ended("none")
    assert job["FailureReason"].startswith(
        "CapacityError: Unable to provision requested ML compute capacity."
    )
    assert "Training" not in statuses(job)


def test_a_job_whose_instances_take_long_to_come_can_be_stopped_meanwhile(server):
    region = Region(server, "eu-west-1")
    region.train("slow", "exit 0")
    region.sm.stop_training_job(TrainingJobName="slow")
    job = region.ended("slow")
    assert (job["TrainingJobStatus"], statuses(job)) == (
        "Stopped",
        ["Starting", "Stopping", "Stopped"],
    )


def test_an_account_may_refuse_remote_debugging(server):
    region = Region(server, "eu-west-3")
    with pytest.raises(ClientError, match="sagemaker:CreateTrainingJob"):
        region.train("debugged", "exit 0", RemoteDebugConfig={"EnableRemoteDebug": True})


def test_a_job_loses_its_instances_at_a_line_however_fast_it_goes_on_behind_it(server, tmp_path):
    # By a signal alone, a program that is done at once would never be interrupted.
    script = "if [ -e $DONE ]; then echo again; exit 0; fi; touch $DONE; echo step 3; echo done; exit 0".replace(
        "$DONE", str(tmp_path / "ran")
    )
    region = Region(server, "eu-west-2")
    region.train("on-demand", "echo step 3")
    assert "Interrupted" not in statuses(region.ended("on-demand"))
    region.train("taken", script, **spot())
    job = region.ended("taken")
    assert (job["TrainingJobStatus"], statuses(job).count("Interrupted")) == ("Completed", 1)
    # It may end before it has printed "done".
    assert [line for line in region.streams("taken")[1] if line != "done"] == ["step 3", "again"]
    region.train("later", "echo step 3", **spot())
    assert "Interrupted" not in statuses(region.ended("later"))


def test_boto3_hears_refusals_of_every_protocol(server):
    with pytest.raises(ClientError, match=r"AccessDenied.*iam:GetRole"):
        server.client("iam").get_role(RoleName="x")
    far = server.client_in("sagemaker", "eu-west-3")
    with pytest.raises(ClientError, match=r"AccessDeniedException.*sagemaker:ListTags"):
        far.list_tags(ResourceArn="arn:aws:sagemaker:us-east-1:1:training-job/x")
    assert far.list_training_jobs()["TrainingJobSummaries"] == []


def test_what_was_asked_for_is_done_though_the_answer_is_lost(server):
    s3 = server.client_in("s3", "ca-central-1")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Bucket=BUCKET, Key="lost", Body=b"x" * 100_000)
    assert len(server.get("lost")) == 100_000
    with pytest.raises(ConnectionClosedError):
        server.client_in("sagemaker", "ca-central-1").create_training_job(
            **training_request("lost", "sleep 100")
        )
    # Its own paths are no part of AWS.
    assert "lost" in server.ask("GET", "/raysm/status")[1]["running"]


def test_an_upload_that_is_refused_leaves_the_connection_usable(server):
    s3 = server.client_in("s3", "sa-east-1")
    codes = [
        code_of(lambda: s3.put_object(Bucket=BUCKET, Key="k", Body=b"x" * 99)) for _ in range(40)
    ]
    assert set(codes) == {"", "SlowDown"}
    assert 8 < codes.count("SlowDown") < 32


def code_of(ask):
    try:
        ask()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return ""


def test_a_role_without_the_permissions_lets_nobody_in(server):
    server.train("alone", ECHO, RemoteDebugConfig={"EnableRemoteDebug": True})
    port = port_of(server, "alone")
    with pytest.raises(ServiceError, match="algo-1 of alone"):
        attach("alone", Service(Local(home=str(server.home)), clients=server.client)).tunnel(port)
    server.sm.stop_training_job(TrainingJobName="alone")
    server.ended("alone")


def signed(service, **headers):
    return {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=a/20261122/us-east-1/{service}/aws4_request, x",
        **headers,
    }


def requested(headers, body=b""):
    return Call(Request(EnvironBuilder(method="POST", headers=headers, data=body).get_environ()))


def call(service="sagemaker", operation="ListTags", **parameters):
    headers = signed(service, **{"X-Amz-Target": f"SageMaker.{operation}"})
    return requested(headers, json.dumps(parameters).encode())


def test_shares_of_requests_are_throttled_or_find_the_service_unavailable():
    faults, codes = Faults(Scenario(api=Api(throttled=0.2, unavailable=0.3)), Random(1)), []
    for _ in range(1000):
        try:
            faults.refuse(call())
        except ApiError as error:
            codes.append(error.code)
    assert 150 < codes.count("ThrottlingException") < 250
    assert 250 < codes.count("InternalFailure") < 350


def rated(**regions):
    scenario = Scenario(
        regions={name: Scenario(api=Api(**switches)) for name, switches in regions.items()}
    )
    clock = HandClock()
    return Faults(scenario, Random(0), clock), clock


def in_region(region, operation="ListTrainingJobs"):
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=a/20261122/{region}/sagemaker/aws4_request, x",
        "X-Amz-Target": f"SageMaker.{operation}",
    }
    return requested(headers)


def test_of_a_rate_so_many_requests_a_second_are_answered_and_those_that_were_refused_count_for_nothing():
    faults, clock = rated(**{"eu-west-1": {"rates": {"ListTrainingJobs": 0.5}}})
    answered = 0
    for _ in range(1000):
        clock.pass_s(0.1)
        with contextlib.suppress(ApiError):
            faults.refuse(in_region("eu-west-1"))
            answered += 1
    # Never more than the rate and what is there at its beginning; less, by what a full bucket
    # cannot take.
    assert 45 <= answered <= 51


DAY_S = 86_400
PLAIN = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}


def resources(**fields):
    return {"ResourceConfig": {**PLAIN, **fields}}


REFUSED = {
    "name": ({"TrainingJobName": "a_b"}, "'a_b' at 'trainingJobName'.*regular expression pattern"),
    "instance type": (resources(InstanceType="ml.nonsense"), "satisfy enum value set"),
    "two wrongs": ({"TrainingJobName": "_", "RoleArn": "x" * 30}, "2 validation errors detected"),
    "same tags": (
        {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]},
        "duplicate tag keys",
    ),
    "no entry point": ({"algorithm": {"ContainerEntrypoint": None}}, "give ContainerEntrypoint"),
    "spot without wait": (
        {"EnableManagedSpotTraining": True},
        "MaxWaitTimeInSeconds must be present",
    ),
    "checkpoint place": (
        {"CheckpointConfig": {"S3Uri": "s3://bkt/x", "LocalPath": "/elsewhere"}},
        "must lie below /opt/ml",
    ),
}


def request_of(name, fields):
    request = training_request(name, "exit 0", **{"algorithm": {}, **fields})
    return {key: value for key, value in request.items() if value is not None}


@pytest.fixture(scope="module")
def unchecked(server):
    """A client that leaves all checking to the server."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "sagemaker",
        endpoint_url=server.record.url,
        aws_access_key_id="x",
        aws_secret_access_key="x",
        region_name="us-east-1",
        config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
    )


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_a_validation_exception(unchecked, case):
    fields, message = REFUSED[case]
    request = request_of("refused", fields)
    request["AlgorithmSpecification"] = {
        k: v for k, v in request["AlgorithmSpecification"].items() if v is not None
    }
    with pytest.raises(ClientError, match=message) as caught:
        unchecked.create_training_job(**request)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


@pytest.mark.parametrize(
    "fields",
    [{"StoppingCondition": {"MaxRuntimeInSeconds": 28 * DAY_S + 1}}, resources(InstanceCount=241)],
)
def test_what_is_past_an_accounts_limit_is_resource_limit_exceeded(unchecked, fields):
    with pytest.raises(ClientError) as caught:
        unchecked.create_training_job(**request_of("past", fields))
    assert caught.value.response["Error"]["Code"] == "ResourceLimitExceeded"


def test_without_a_server_the_least_request_passes_and_members_of_a_newer_model_do_too():
    check("CreateTrainingJob", training_parameters(OfNextYear={"a": 1}))
    check_rules(TRAINING, training_parameters())


def test_an_instance_type_of_next_year_passes_and_what_has_not_its_form_does_not():
    resources = {"InstanceCount": 1, "VolumeSizeInGB": 1}
    check(
        "CreateTrainingJob",
        training_parameters(ResourceConfig={**resources, "InstanceType": "ml.p99.2xlarge"}),
    )
    with pytest.raises(ApiError, match="satisfy enum value set"):
        check(
            "CreateTrainingJob",
            training_parameters(ResourceConfig={**resources, "InstanceType": "p99"}),
        )
