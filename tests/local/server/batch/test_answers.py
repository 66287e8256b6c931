"""What Batch tells of jobs, as botocore's model of its answers has it."""

import pytest

from raysm.contract.service_model import violations_in
from raysm.local.server.batch import answers
from raysm.local.server.batch.model import _model
from raysm.local.server.batch.records import BatchJob, Try

TRIES = (
    Try(
        resource="arn:aws:sagemaker:r:1:training-job/AWSBatchx", begun_s=1.0, started_s=2.0, stopped_s=3.0, reason="no"
    ),
    Try(resource="arn:aws:sagemaker:r:1:training-job/AWSBatchy", begun_s=4.0, exit_code=1),
)


def job(**fields):
    request = {
        "retryStrategy": {"attempts": 2},
        "jobDefinition": "arn:aws:batch:r:1:job-definition/d:1",
        "containerProperties": {"image": "any:1", "command": ["true"]},
    }
    values = {"id": "j", "kind": "job", "name": "n", "region": "r", "queue": "q", "request": request, "created_s": 1.5}
    return BatchJob(**{**values, "started_s": 2.0, "tries": TRIES, "status": "RUNNING", **fields})


def children(count):
    return [job(id=f"j:{index}", index=index, size=count, status="SUCCEEDED") for index in range(count)]


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("DescribeJobs", lambda: {"jobs": [answers.describe_program(job(size=2), children(2))]}),
        ("ListJobs", lambda: {"jobSummaryList": [answers.summarize_program(child, []) for child in children(2)]}),
    ],
)
def test_an_answer_is_one_that_the_model_knows(operation, answer):
    shape = _model().operation_model(operation).output_shape
    left_out = {"isCancelled", "schedulingPriority"}
    broken = [item for item in violations_in(answer(), shape, takes_files=False) if item.path[-1] not in left_out]
    assert broken == []


def test_moments_are_in_milliseconds():
    assert (answers.describe_program(job(), [])["createdAt"], answers.describe_program(job(), [])["startedAt"]) == (
        1500,
        2000,
    )


def test_an_array_says_how_many_of_its_children_are_what():
    array = answers.describe_program(job(size=3), children(3))["arrayProperties"]
    assert (array["size"], array["statusSummary"]["SUCCEEDED"], array["statusSummary"]["FAILED"]) == (3, 3, 0)
    assert answers.summarize_program(children(3)[2], [])["arrayProperties"] == {"size": 3, "index": 2}
