"""Who is let in, and who answers: ours by its target or path, all else moto's."""

import contextlib
import http.client
import json
import threading

import pytest
from botocore.exceptions import ClientError

from raysm.local.server.faults import MAX_REQUEST
from tests.support.sagemaker_server import BUCKET, training_request, wait_until


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


def test_of_many_conditional_writes_at_a_time_one_succeeds(server):
    """moto looks whether the object is as its writer has read it, and writes then: several would find it so."""
    outcomes = []

    def write(number):
        try:
            server.s3.put_object(Bucket=BUCKET, Key="contested", Body=b"%d" % number, IfNoneMatch="*")
            outcomes.append("written")
        except ClientError as error:
            outcomes.append(error.response["Error"]["Code"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["PreconditionFailed"] * 7 + ["written"]


def names(client):
    summaries = client.list_training_jobs(NameContains="same", MaxResults=100)["TrainingJobSummaries"]
    return [(summary["TrainingJobName"], summary["TrainingJobArn"].split(":")[3]) for summary in summaries]


def test_a_name_is_one_jobs_in_one_region_alone(server):
    far = server.client_in("sagemaker", "eu-west-1")
    server.train("same", "exit 0")
    far.create_training_job(**training_request("same", "exit 3"))
    with pytest.raises(ClientError, match="ResourceInUse"):
        far.create_training_job(**training_request("same", "exit 0"))
    assert server.ended("same")["TrainingJobStatus"] == "Completed"
    wait_until(lambda: far.describe_training_job(TrainingJobName="same")["TrainingJobStatus"] == "Failed")
    assert names(server.sm) == [("same", "us-east-1")]
    assert names(far) == [("same", "eu-west-1")]
