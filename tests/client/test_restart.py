"""The follow-up of a job, made of what the service says of it: no service is needed."""

import pytest

from raysm.client.job.chain import MAX_NAME, follow_up, is_follow_up, names_until, next_name
from raysm.client.job.description import read
from raysm.contract.job_api import TRAINING
from raysm.contract.names import FIRST_TAG, MAX_RESTARTS_TAG, RESTART_TAG

TAGS = {MAX_RESTARTS_TAG: "2"}
SECOND = {**TAGS, FIRST_TAG: "task", RESTART_TAG: "1"}


def ended(name="task", secondary="MaxRuntimeExceeded", **fields):
    answer = {
        "TrainingJobName": name,
        "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:000000000000:training-job/{name}",
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": secondary,
        "CheckpointConfig": {"S3Uri": "s3://bucket/state"},
        "ResourceConfig": {"InstanceCount": 2, "SelectedInstanceType": "ml.m5.large", "SelectedInstanceCount": 2},
    }
    return read(TRAINING, {key: item for key, item in (answer | fields).items() if item is not None})


@pytest.mark.parametrize(
    ("description", "tags", "name"),
    [
        (ended(), TAGS, "task-r1"),
        (ended("task-r1"), SECOND, "task-r2"),
        (ended("task-r2"), {**SECOND, RESTART_TAG: "2"}, None),
        (ended(), {}, None),
        (ended(secondary="Stopped"), TAGS, None),
        (ended(CheckpointConfig=None), TAGS, None),
    ],
    ids=["first", "second", "as often as it may", "never", "stopped by somebody", "without a state"],
)
def test_the_next_name_follows_from_the_first_jobs_while_there_may_be_one(description, tags, name):
    assert next_name(description, tags) == name


def test_the_name_of_a_follow_up_of_a_long_name_fits():
    assert next_name(ended("a" * MAX_NAME), TAGS) == "a" * (MAX_NAME - 3) + "-r1"


def test_the_call_is_the_same_from_the_same_state_under_the_next_name():
    call = follow_up(ended("task-r1"), {**SECOND, "team": "a", "aws:internal": "x"}).request
    assert call["TrainingJobName"] == "task-r2"
    assert call["CheckpointConfig"] == {"S3Uri": "s3://bucket/state"}
    assert call["ResourceConfig"] == {"InstanceCount": 2}
    assert {tag["Key"]: tag["Value"] for tag in call["Tags"]} == {
        MAX_RESTARTS_TAG: "2",
        RESTART_TAG: "2",
        FIRST_TAG: "task",
        "team": "a",
    }


def test_the_names_of_all_before_follow_from_the_tags_alone():
    assert names_until("task", TAGS) == ("task",)
    assert names_until("task-r2", {**SECOND, RESTART_TAG: "2"}) == ("task", "task-r1", "task-r2")
    assert (is_follow_up("task-r2"), is_follow_up("task-r")) == (True, False)
