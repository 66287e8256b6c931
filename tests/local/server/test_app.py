"""Who is let in, and who answers, and how: ours by its target or path, all else moto."""

import contextlib
import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError
from werkzeug.test import Client
from werkzeug.wrappers import Response

from raysm.core.protocol.job_api import APIS, PROCESSING, TRAINING
from raysm.core.protocol.service_model import service_model
from raysm.local.scenario import Scenario
from raysm.local.server.app import App
from raysm.local.server.faults import MAX_REQUEST, Faults
from raysm.local.server.moto_services import MotoServices, simulate_policy
from raysm.local.server.operations import describe, summarize
from raysm.local.server.records import JobRecord
from raysm.local.server.services import Cores
from tests.support.api_requests import processing_parameters, training_parameters
from tests.support.sagemaker_server import BUCKET, training_request, until


def ask(server, target="SageMaker.ListTrainingJobs", body=b"{}", **headers):
    """Return status and answer; names of headers have an underscore for each hyphen."""
    connection = http.client.HTTPConnection("127.0.0.1", server.record.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection):
        connection.request("POST", "/", body, {"X-Amz-Target": target, **named})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Host": "localhost:5000"}, True),
        ({"Host": "bucket.localhost"}, True),
        ({"Host": "[::1]:5000"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "localhost.evil.example"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
    ],
)
def test_no_page_in_a_browser_is_answered_whatever_it_calls_this_machine(server, headers, allowed):
    assert ask(server, **headers)[0] == (200 if allowed else 403)


@pytest.mark.parametrize("body", [b"no json", b"[1]", b"7"])
def test_a_body_that_is_no_object_is_refused(server, body):
    status, answer = ask(server, body=body)
    assert (status, answer["__type"]) == (400, "SerializationException")


def test_a_request_larger_than_any_is_refused_before_it_is_read(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.record.port, timeout=60)
    connection.putrequest("POST", "/")
    connection.putheader("X-Amz-Target", "SageMaker.ListTrainingJobs")
    connection.putheader("Content-Length", str(MAX_REQUEST + 1))
    connection.endheaders()
    assert json.loads(connection.getresponse().read())["__type"] == "RequestEntityTooLargeException"
    connection.close()


class SlowToWrite:
    """A store that looks whether its object exists and then writes, as moto does, with a pause in between."""

    def __init__(self):
        self.exists = False
        self._looked = threading.Barrier(2)

    def application(self, environ, start_response):
        exists = self.exists
        # Two requests at a time meet here; one alone goes on after the timeout.
        with contextlib.suppress(threading.BrokenBarrierError):
            self._looked.wait(0.5)
        if exists:
            return Response(status=412)(environ, start_response)
        self.exists = True
        return Response()(environ, start_response)


@pytest.mark.parametrize("condition", [{"If-None-Match": "*"}, {"If-Match": "version"}])
def test_of_conditional_writes_at_the_same_time_one_succeeds(condition):
    """moto looks whether the object is as its writer has read it, and writes then: several would find it so."""
    entering = SimpleNamespace(asks=lambda method, path: False)
    faults = Faults(Scenario(), Random(0))
    app = App(None, None, None, SlowToWrite(), faults, entering, None, None)

    def write(_):
        return Client(app).put("http://127.0.0.1/bucket/contested", headers=condition).status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(write, range(2))) == [200, 412]


def test_a_write_on_the_condition_that_its_object_does_not_exist_is_refused_if_it_does(server):
    server.s3.put_object(Bucket=BUCKET, Key="claimed", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        server.s3.put_object(Bucket=BUCKET, Key="claimed", Body=b"second", IfNoneMatch="*")
    assert server.get("claimed") == b"first"


def test_an_object_can_be_read_and_written_many_times_at_once(server):
    """Two tries of one task send the same payload: moto closes the old content, which another request may read."""
    content = b"the same" * 20_000

    def write_and_read(_):
        server.s3.put_object(Bucket=BUCKET, Key="payload", Body=content)
        assert server.get("payload") == content

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write_and_read, range(200)))


def names(client):
    summaries = client.list_training_jobs(NameContains="same", MaxResults=100)[
        "TrainingJobSummaries"
    ]
    return [
        (summary["TrainingJobName"], summary["TrainingJobArn"].split(":")[3])
        for summary in summaries
    ]


def test_a_name_is_one_jobs_in_one_region_alone(server):
    far = server.client_in("sagemaker", "eu-west-1")
    server.train("same", "exit 0")
    far.create_training_job(**training_request("same", "exit 3"))
    with pytest.raises(ClientError, match="ResourceInUse"):
        far.create_training_job(**training_request("same", "exit 0"))
    assert server.ended("same")["TrainingJobStatus"] == "Completed"
    until(
        lambda: far.describe_training_job(TrainingJobName="same")["TrainingJobStatus"] == "Failed"
    )
    assert names(server.sm) == [("same", "us-east-1")]
    assert names(far) == [("same", "eu-west-1")]


def test_who_waits_is_told_what_for_and_behind_whom():
    capacity = Cores(2)
    runs = capacity.ask(1, "runs")
    first, second = capacity.ask(2, "first"), capacity.ask(1, "second")
    third = capacity.ask(9, "third")
    assert capacity.reason(runs) == ""
    assert "2 of 2 cores, 1 of them free" in capacity.reason(first)
    assert "raysm stop runs" in capacity.reason(first)
    assert "number 2 in line, behind first" in capacity.reason(second)
    assert "number 3 in line, behind second" in capacity.reason(third)
    capacity.give_back(runs)
    assert "1 of 2 cores, 0 of them free" in capacity.reason(second)
    assert "raysm stop first" in capacity.reason(second)


def test_a_job_of_more_instances_than_cores_runs_alone():
    capacity = Cores(2)
    one, huge = capacity.ask(1), capacity.ask(10)
    assert not huge.granted
    capacity.give_back(one)
    assert huge.granted
    assert not capacity.ask(1).granted


def test_who_leaves_the_queue_lets_the_next_one_by_and_cores_come_back_once():
    capacity = Cores(2)
    first, second, third = capacity.ask(1), capacity.ask(2), capacity.ask(1)
    capacity.give_back(second)
    assert third.granted
    for _ in range(3):
        capacity.give_back(first)
        capacity.give_back(third)
    assert capacity.wait(capacity.ask(2), 0.0)
    assert not capacity.wait(capacity.ask(1), 0.01)


def record(api, **fields):
    parameters = {TRAINING: training_parameters, PROCESSING: processing_parameters}[api]()
    arn = api.arn(region="us-east-1", account="123456789012", name="a-job")
    known = {
        "kind": api.kind,
        "name": "a-job",
        "arn": arn,
        "region": "us-east-1",
        "request": parameters,
    }
    return JobRecord(**known, created_s=1.0, modified_s=2.0, **fields)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_nothing_is_answered_that_the_api_has_not_and_nothing_is_null(api):
    one = record(
        api,
        failure_reason="why",
        exit_message="what",
        artifacts="s3://b/m",
        ended_s=3.0,
        training_s=1.0,
    )
    described = describe(one)
    assert set(described) <= set(service_model().operation_model(api.describe).output_shape.members)
    assert set(summarize(one)) <= set(service_model().shape_for(api.summary_shape).members)
    assert None not in [*described.values(), *summarize(one).values()]
    assert (described[api.name_key], described[api.arn_key]) == ("a-job", one.arn)


def test_only_a_job_that_has_ended_is_billed_and_at_least_a_second():
    assert "BillableTimeInSeconds" not in describe(record(TRAINING, training_s=9.0))
    assert (
        describe(record(TRAINING, status="Completed", training_s=0.2))["BillableTimeInSeconds"] == 1
    )


def test_what_spot_capacity_saves_is_trained_and_not_billed():
    told = describe(record(TRAINING, status="Completed", training_s=100.0, spot_saving=0.62))
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (100, 38)


def form(action="SimulatePrincipalPolicy", role="arn:aws:iam::123456789012:role/team/trainer"):
    return f"Action={action}&PolicySourceArn={role}&ActionNames.member.1=s3:PutObject&ActionNames.member.2=a<b".encode()


def test_every_action_is_allowed_and_the_role_is_there_and_trusts_sagemaker(moto):
    text = simulate_policy(form(), moto).decode()
    assert text.count("<EvalDecision>allowed</EvalDecision>") == 2
    assert "<EvalActionName>a&lt;b</EvalActionName>" in text
    role = moto.client("iam").get_role(RoleName="trainer")["Role"]
    assert role["Path"] == "/team/"
    assert "sagemaker.amazonaws.com" in str(role["AssumeRolePolicyDocument"])


@pytest.fixture
def moto():
    return MotoServices()


def test_an_object_whose_key_needs_quoting_comes_back_byte_for_byte(moto):
    s3, key, content = moto.client("s3"), "a b/ü+?&.bin", bytes(range(256))
    s3.create_bucket(Bucket="quoted")
    try:
        s3.put_object(Bucket="quoted", Key=key, Body=content)
        assert [item["Key"] for item in s3.list_objects_v2(Bucket="quoted")["Contents"]] == [key]
        assert b"".join(moto.open_object("quoted", key, len(content))) == content
    finally:
        s3.delete_object(Bucket="quoted", Key=key)
        s3.delete_bucket(Bucket="quoted")
