"""The embedded Batch: programs that really run, alone and as arrays, over boto3; and its pure rules."""

import json

import pytest
from botocore.exceptions import ClientError

from raysm.local.server.batch import is_retried
from tests.support.batch_queues import LOGS, define, make_queue
from tests.support.sagemaker_server import serving, until

FINAL = ("SUCCEEDED", "FAILED")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home")) as running:
        make_queue(running.client("batch"))
        yield running


@pytest.fixture
def batch(server):
    return server.client("batch")


def described(batch, job_id):
    return batch.describe_jobs(jobs=[job_id])["jobs"][0]


def ended(batch, job_id):
    until(lambda: described(batch, job_id)["status"] in FINAL)
    return described(batch, job_id)


def submit(batch, script, name="program", **fields):
    arn = define(batch, script, name)
    return batch.submit_job(jobName=name, jobQueue="programs", jobDefinition=arn, **fields)["jobId"]


def lines(server, job):
    stream = job["container"]["logStreamName"]
    events = server.client("logs").get_log_events(logGroupName=LOGS, logStreamName=stream)["events"]
    return [event["message"] for event in events]


def test_a_program_runs_reaches_this_server_and_its_lines_are_in_its_log(batch, server):
    script = (
        'echo "attempt $AWS_BATCH_JOB_ATTEMPT in $AWS_BATCH_JQ_NAME of $AWS_BATCH_CE_NAME"; python3 -c '
        '\'import boto3; boto3.client("s3").put_object(Bucket="test-bucket", Key="from-batch")\''
    )
    job = ended(batch, submit(batch, script))
    assert (job["status"], job["container"]["exitCode"]) == ("SUCCEEDED", 0)
    assert lines(server, job) == ["attempt 1 in programs of programs-env"]
    assert server.keys("from-") == ["batch"]


def test_an_array_gives_each_child_its_index_and_retries_only_the_child_that_failed(batch, server):
    script = (
        'echo "$AWS_BATCH_JOB_ARRAY_INDEX of $AWS_BATCH_JOB_ARRAY_SIZE"; '
        'test "$AWS_BATCH_JOB_ARRAY_INDEX" != 1 || test "$AWS_BATCH_JOB_ATTEMPT" = 2 || exit 7'
    )
    array = submit(batch, script, arrayProperties={"size": 3}, retryStrategy={"attempts": 2})
    assert described(batch, array)["status"] in ("PENDING", "SUCCEEDED")
    job = ended(batch, array)
    assert (job["status"], job["arrayProperties"]["statusSummary"]) == (
        "SUCCEEDED",
        {"SUCCEEDED": 3},
    )
    children = [described(batch, f"{array}:{index}") for index in range(3)]
    assert [lines(server, child) for child in children] == [["0 of 3"], ["1 of 3"], ["2 of 3"]]
    codes = [
        [attempt["container"]["exitCode"] for attempt in child["attempts"]] for child in children
    ]
    assert codes == [[0], [7, 0], [0]]


def test_a_terminated_job_gets_sigterm_and_fails_with_the_reason(batch):
    job_id = submit(batch, "trap 'exit 0' TERM; sleep 600 & wait")
    until(lambda: described(batch, job_id)["status"] == "RUNNING")
    batch.terminate_job(jobId=job_id, reason="enough")
    job = ended(batch, job_id)
    assert (job["status"], job["statusReason"], job["isTerminated"]) == ("FAILED", "enough", True)


def test_queues_and_definitions_are_described_and_each_region_has_its_own(batch, server):
    (queue,) = batch.describe_job_queues(jobQueues=["programs"])["jobQueues"]
    assert (queue["state"], queue["status"], queue["priority"]) == ("ENABLED", "VALID", 1)
    arns = [define(batch, "true", name="twice") for _ in range(2)]
    assert [arn.rpartition(":")[2] for arn in arns] == ["1", "2"]
    listed = batch.describe_job_definitions(jobDefinitionName="twice", status="ACTIVE")[
        "jobDefinitions"
    ]
    assert [each["jobDefinitionArn"] for each in listed] == arns
    assert server.client_in("batch", "eu-west-1").describe_job_queues()["jobQueues"] == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda batch: batch.create_consumable_resource(consumableResourceName="x"),
            "does not emulate CreateConsum",
        ),
        (
            lambda batch: batch.list_tags_for_resource(resourceArn="arn:x"),
            "does not emulate /v1/tags/",
        ),
        (lambda batch: submit(batch, "true", parameters={"a": "b"}), "does not emulate parameters"),
        (
            lambda batch: submit(batch, "true", arrayProperties={"size": 1}),
            "size is 2 to 10000, got 1",
        ),
        (lambda batch: make_queue(batch), "Object already exists"),
        (
            lambda batch: batch.submit_job(jobName="a", jobQueue="none", jobDefinition="b"),
            "none does not exist: there is no such job-queue",
        ),
        (
            lambda batch: batch.submit_job(jobName="a", jobQueue="programs", jobDefinition="b"),
            "JobDefinition b does not exist",
        ),
        (
            lambda batch: batch.register_job_definition(jobDefinitionName="x", type="multinode"),
            "runs definitions of type container",
        ),
    ],
)
def test_a_request_that_cannot_be_is_refused(batch, call, words):
    with pytest.raises(ClientError, match=words):
        call(batch)


def test_a_request_without_its_required_members_is_refused(server):
    authorization = "AWS4-HMAC-SHA256 Credential=a/20261122/us-east-1/batch/aws4_request, x"
    status, answer = server.ask("POST", "/v1/submitjob", {"Authorization": authorization})
    assert (status, answer["__type"]) == (400, "ClientException")
    assert "jobName" in json.dumps(answer)


RULES = [
    {"onExitCode": "4*", "action": "EXIT"},
    {"onReason": "Host*", "onExitCode": "1", "action": "RETRY"},
]


@pytest.mark.parametrize(
    ("attempts", "rules", "reason", "code", "is_again"),
    [
        (1, [], "x", 1, True),
        (3, [], "x", 1, False),
        (1, RULES, "x", 42, False),
        (1, RULES, "x", None, True),
        (1, [*RULES, {"onReason": "*", "action": "exit"}], "Host gone", 1, True),
        (1, [*RULES, {"onReason": "*", "action": "exit"}], "x", 1, False),
    ],
)
def test_an_attempt_is_retried_by_the_first_rule_that_matches(
    attempts, rules, reason, code, is_again
):
    assert is_retried({"attempts": 3, "evaluateOnExit": rules}, attempts, reason, code) is is_again
