"""The embedded Batch over boto3: programs that really run, alone and as arrays."""

import json

import pytest
from botocore.exceptions import ClientError

from raysm.local.server.batch.service import BatchService
from tests.support.batch_queues import LOGS, define
from tests.support.sagemaker_server import wait_until

FINAL = ("SUCCEEDED", "FAILED")


def told(batch, job_id):
    return batch.describe_jobs(jobs=[job_id])["jobs"][0]


def ended(batch, job_id):
    wait_until(lambda: told(batch, job_id)["status"] in FINAL)
    return told(batch, job_id)


def submit(batch, script, name="program", **fields):
    arn = define(batch, script, name)
    return batch.submit_job(jobName=name, jobQueue="programs", jobDefinition=arn, **fields)["jobId"]


def lines(server, stream):
    events = server.client("logs").get_log_events(logGroupName=LOGS, logStreamName=stream)["events"]
    return [event["message"] for event in events]


def test_what_batch_has_not_is_refused_by_its_name(batch):
    assert callable(BatchService.answer)
    with pytest.raises(ClientError, match="does not emulate CreateConsumableResource of the service batch"):
        batch.create_consumable_resource(consumableResourceName="x")


def test_a_program_runs_and_its_lines_are_in_its_log(batch, server):
    script = 'echo "I am attempt $AWS_BATCH_JOB_ATTEMPT in $AWS_BATCH_JQ_NAME of $AWS_BATCH_CE_NAME"'
    job = ended(batch, submit(batch, script))
    assert (job["status"], job["container"]["exitCode"]) == ("SUCCEEDED", 0)
    assert lines(server, job["container"]["logStreamName"]) == ["I am attempt 1 in programs of programs-env"]


def test_the_children_of_an_array_each_have_their_index_and_the_array_ends_with_the_last(batch, server):
    array = submit(batch, 'echo "$AWS_BATCH_JOB_ARRAY_INDEX of $AWS_BATCH_JOB_ARRAY_SIZE"', arrayProperties={"size": 3})
    job = ended(batch, array)
    assert (job["status"], job["arrayProperties"]["statusSummary"]["SUCCEEDED"]) == ("SUCCEEDED", 3)
    streams = [told(batch, f"{array}:{index}")["container"]["logStreamName"] for index in range(3)]
    assert [lines(server, stream) for stream in streams] == [["0 of 3"], ["1 of 3"], ["2 of 3"]]


def test_a_child_that_fails_is_tried_again_and_the_others_are_not(batch):
    script = 'test "$AWS_BATCH_JOB_ARRAY_INDEX" = 0 || test "$AWS_BATCH_JOB_ATTEMPT" = 2 || exit 7'
    array = submit(batch, script, arrayProperties={"size": 2}, retryStrategy={"attempts": 2})
    assert ended(batch, array)["status"] == "SUCCEEDED"
    codes = [[one["container"]["exitCode"] for one in told(batch, f"{array}:{i}")["attempts"]] for i in range(2)]
    assert codes == [[0], [7, 0]]


def test_an_array_of_which_one_child_fails_fails(batch):
    array = submit(batch, 'exit "$AWS_BATCH_JOB_ARRAY_INDEX"', arrayProperties={"size": 2})
    job = ended(batch, array)
    assert (job["status"], job["statusReason"]) == ("FAILED", "Array Child Job failed")
    failed = batch.list_jobs(arrayJobId=array, jobStatus="FAILED")["jobSummaryList"]
    assert [item["container"]["exitCode"] for item in failed] == [1]


def test_a_program_reaches_the_same_aws_as_whoever_sent_it(batch, server):
    script = 'python3 -c \'import boto3; boto3.client("s3").put_object(Bucket="test-bucket", Key="from-batch")\''
    assert ended(batch, submit(batch, script))["status"] == "SUCCEEDED"
    assert server.keys("from-") == ["batch"]


def test_a_program_that_is_terminated_is_told_and_ends(batch):
    job_id = submit(batch, "trap 'exit 9' TERM; sleep 600 & wait")
    wait_until(lambda: told(batch, job_id)["status"] == "RUNNING")
    batch.terminate_job(jobId=job_id, reason="enough")
    job = ended(batch, job_id)
    assert (job["status"], job["statusReason"], job["isTerminated"]) == ("FAILED", "enough", True)


def test_tags_of_a_queue_come_and_go_over_the_wire(batch):
    (queue,) = batch.describe_job_queues(jobQueues=["programs"])["jobQueues"]
    arn = queue["jobQueueArn"]
    batch.tag_resource(resourceArn=arn, tags={"a": "1", "b/c": "2"})
    batch.untag_resource(resourceArn=arn, tagKeys=["a"])
    assert batch.list_tags_for_resource(resourceArn=arn)["tags"] == {"b/c": "2"}


def test_a_request_without_a_body_that_is_json_is_refused(server):
    status, answer = server.ask(
        "POST",
        "/v1/submitjob",
        {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20261122/us-east-1/batch/aws4_request, x"},
    )
    assert (status, answer["__type"]) == (400, "ClientException")
    assert "jobName" in json.dumps(answer)
