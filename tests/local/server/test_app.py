"""Who is let in, and who answers: ours by its target or path, all else moto's."""

import http.client
import json
import threading
from random import Random

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from werkzeug.wrappers import Response

from raysm.local.scenario import Scenario
from raysm.local.server.app import MAX_REQUEST, App
from raysm.local.server.faults import Faults
from raysm.local.server.http_server import HttpServer
from raysm.local.server.log_service import GROUPS
from raysm.local.server.market import MarketService
from raysm.local.server.validation import ApiError
from tests.support.sagemaker_server import training_request


class Operations:
    def __init__(self):
        self.asked = []

    def has(self, operation, parameters):
        return operation != "CreateEndpoint"

    def answer(self, operation, parameters, region):
        self.asked.append((operation, parameters, region))
        if operation == "DescribeTrainingJob":
            raise ApiError("ValidationException", "there is no such job")
        if operation == "StopTrainingJob":
            raise RuntimeError("out of paper")
        return {"answered": operation}


class Logs:
    def answer(self, operation, request, region):
        return {"events": []} if operation == "GetLogEvents" else None


class Entering:
    """Requests for an instance."""

    def asks(self, method, path):
        return path.endswith("/ports/22")

    def serve(self, path, request, connection):
        raise ApiError("TargetNotConnected", f"{path} is not connected")


class Console:
    def answer(self, method, path):
        return {"asked": [method, path]}


class Batch:
    """Batch's part."""

    def answer(self, method, path, request, region):
        return {"asked": [method, path, request, region]}


class Moto:
    """Moto's part: answers with what it was sent, and notes the groups that it is to have."""

    def __init__(self):
        self.groups = []

    def application(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        return Response(b"moto: " + body)(environ, start_response)

    def client(self, service, region):
        self.region = region
        return self

    def create_log_group(self, **request):
        self.groups.append((self.region, request["logGroupName"]))


class Served:
    """The application behind a port of this machine: who asks is known by the connection alone."""

    def __init__(self):
        self.operations, self.moto = Operations(), Moto()
        self.app = App(
            self.operations,
            Logs(),
            Console(),
            self.moto,
            Faults(Scenario(), Random(0)),
            Entering(),
            MarketService(Scenario()),
            Batch(),
        )
        self.server = HttpServer(0, self.app)
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def ask(self, target="", body=b"{}", path="/", method="POST", **headers):
        """Return status and answer; names of headers have an underscore for each hyphen."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, {"X-Amz-Target": target, **named})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(content) if content[:1] == b"{" else content

    def close(self):
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def served():
    one = Served()
    yield one
    one.close()


BATCH = "AWS4-HMAC-SHA256 Credential=a/20261122/eu-west-1/batch/aws4_request, x"


def test_what_is_signed_for_batch_is_answered_by_it_with_the_region(served):
    answer = served.ask(body=b'{"jobs": []}', path="/v1/describejobs", Authorization=BATCH)
    assert answer == (200, {"asked": ["POST", "/v1/describejobs", {"jobs": []}, "eu-west-1"]})


def test_what_is_sagemakers_is_answered_here_in_the_region_that_the_signature_names(served):
    signature = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-west-1/sagemaker/aws4_request, Signature=0"
    answer = served.ask("SageMaker.CreateTrainingJob", b'{"a": 1}', Authorization=signature)
    assert answer == (200, {"answered": "CreateTrainingJob"})
    served.ask("SageMaker.ListTrainingJobs", b"")
    assert served.operations.asked == [
        ("CreateTrainingJob", {"a": 1}, "eu-west-1"),
        ("ListTrainingJobs", {}, "us-east-1"),
    ]


def test_what_nobody_here_answers_is_motos_with_the_whole_body(served):
    assert served.ask("SageMaker.CreateEndpoint", b'{"b": 2}') == (200, b'moto: {"b": 2}')
    assert served.ask("DynamoDB_20120810.ListTables", b"{}") == (200, b"moto: {}")
    assert served.ask(path="/bucket/key", method="PUT", body=b"bytes") == (200, b"moto: bytes")


def test_logs_of_jobs_are_answered_here_and_moto_has_the_groups_that_it_lists_once_for_each_region(served):
    assert served.ask("Logs_20140328.GetLogEvents") == (200, {"events": []})
    assert served.moto.groups == []
    for _ in range(2):
        assert served.ask("Logs_20140328.DescribeLogGroups") == (200, b"moto: {}")
    assert served.moto.groups == [("us-east-1", group) for group in GROUPS]


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
def test_no_page_in_a_browser_is_answered_whatever_it_calls_this_machine(served, headers, allowed):
    status, _ = served.ask("SageMaker.ListTrainingJobs", **headers)
    assert status == (200 if allowed else 403)
    assert bool(served.operations.asked) is allowed


@pytest.mark.parametrize("body", [b"no json", b"[1]", b"7"])
def test_a_body_that_is_no_object_is_refused(served, body):
    status, answer = served.ask("SageMaker.ListTrainingJobs", body)
    assert (status, answer["__type"]) == (400, "SerializationException")


def test_a_request_larger_than_any_is_refused_before_it_is_read(served):
    connection = http.client.HTTPConnection("127.0.0.1", served.server.server_port, timeout=60)
    connection.putrequest("POST", "/")
    connection.putheader("X-Amz-Target", "SageMaker.ListTrainingJobs")
    connection.putheader("Content-Length", str(MAX_REQUEST + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert json.loads(answer.read())["__type"] == "RequestEntityTooLargeException"
    connection.close()


class Meeting(Moto):
    """Moto, whose calls wait a moment for one another."""

    def __init__(self):
        super().__init__()
        self.met = 0
        self._barrier = threading.Barrier(2)

    def application(self, environ, start_response):
        try:
            self._barrier.wait(0.3)
            self.met += 1
        except threading.BrokenBarrierError:
            self._barrier.reset()
        return super().application(environ, start_response)


@pytest.mark.parametrize(("headers", "met"), [({"If_Match": '"etag"'}, 0), ({"If_None_Match": "*"}, 0)])
def test_of_two_conditional_writes_moto_sees_one_at_a_time(served, headers, met):
    """moto looks whether the object is as its writer has read it, and writes then: both would find it so."""
    meeting = Meeting()
    served.app = None
    app = App(
        Operations(),
        Logs(),
        Console(),
        meeting,
        Faults(Scenario(), Random(0)),
        Entering(),
        MarketService(Scenario()),
        Batch(),
    )
    served.server.app = app
    threads = [
        threading.Thread(target=served.ask, kwargs={"path": "/bucket/key", "method": "PUT", **headers})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meeting.met == met


@pytest.fixture(scope="module")
def far(server):
    """SageMaker of another region, at the same endpoint."""
    return boto3.client(
        "sagemaker",
        endpoint_url=server.record.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="eu-west-1",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


def names(client):
    summaries = client.list_training_jobs(NameContains="same", MaxResults=100)["TrainingJobSummaries"]
    return [(summary["TrainingJobName"], summary["TrainingJobArn"].split(":")[3]) for summary in summaries]


def test_a_name_is_one_jobs_in_one_region_alone(server, far):
    server.train("same", "exit 0")
    far.create_training_job(**training_request("same", "exit 3"))
    with pytest.raises(ClientError, match="ResourceInUse"):
        far.create_training_job(**training_request("same", "exit 0"))
    far.get_waiter("training_job_completed_or_stopped").config.delay = 1
    server.ended("same")
    while far.describe_training_job(TrainingJobName="same")["TrainingJobStatus"] == "InProgress":
        server.ask("GET", "/raysm/status")
    assert server.describe("same")["TrainingJobStatus"] == "Completed"
    assert far.describe_training_job(TrainingJobName="same")["TrainingJobStatus"] == "Failed"
    assert names(server.sm) == [("same", "us-east-1")]
    assert names(far) == [("same", "eu-west-1")]


def test_a_page_of_a_status_is_taken_before_it_is_filtered(server, far):
    for name, code in (("paged-1", 1), ("paged-2", 0), ("paged-3", 0)):
        server.train(name, f"exit {code}")
        server.ended(name)
    first = server.sm.list_training_jobs(NameContains="paged-", StatusEquals="Failed", MaxResults=2)
    assert first["TrainingJobSummaries"] == []
    second = server.sm.list_training_jobs(
        NameContains="paged-", StatusEquals="Failed", MaxResults=2, NextToken=first["NextToken"]
    )
    assert [job["TrainingJobName"] for job in second["TrainingJobSummaries"]] == ["paged-1"]
