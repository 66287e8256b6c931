"""Compute environments and job queues, made and unmade."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.resource_operations import ResourceOperations
from tests.support.batch_queues import HandBatch
from tests.support.hand_clock import HandClock


@pytest.fixture
def batch(tmp_path):
    return HandBatch(tmp_path, HandClock())


@pytest.fixture
def call(batch):
    owner = ResourceOperations(batch.resources, batch.jobs)

    def ask(operation, region="us-east-1", **request):
        return owner.operations[operation](request, region)

    return ask


@pytest.fixture
def environment(call):
    return call(
        "CreateComputeEnvironment", computeEnvironmentName="env", type="MANAGED", computeResources={"maxvCpus": 4}
    )["computeEnvironmentArn"]


def make_queue(call, environment, name="team", **fields):
    order = [{"order": 1, "computeEnvironment": environment}]
    return call("CreateJobQueue", **{"jobQueueName": name, "priority": 1, "computeEnvironmentOrder": order, **fields})


def test_what_was_made_is_valid_and_described_as_it_was_asked_for(call, environment):
    make_queue(call, environment)
    (queue,) = call("DescribeJobQueues", jobQueues=["team"])["jobQueues"]
    assert (queue["state"], queue["status"]) == ("ENABLED", "VALID")
    assert queue["computeEnvironmentOrder"] == [{"order": 1, "computeEnvironment": environment}]
    (described,) = call("DescribeComputeEnvironments", computeEnvironments=["env"])["computeEnvironments"]
    assert described["computeEnvironmentArn"] == environment


def test_what_is_not_there_is_not_described_and_no_error(call):
    assert call("DescribeJobQueues", jobQueues=["nobody"]) == {"jobQueues": []}
    assert call("DescribeJobQueues", region="eu-west-1") == {"jobQueues": []}


def test_a_queue_of_an_environment_that_is_not_there_is_refused(call):
    with pytest.raises(ApiError, match="nowhere does not exist"):
        make_queue(call, "nowhere")


@pytest.mark.parametrize("key", ["serviceEnvironmentOrder", "schedulingPolicyArn", "jobStateTimeLimitActions"])
def test_parts_of_a_queue_that_are_not_emulated_are_refused_by_name(call, environment, key):
    with pytest.raises(ApiError, match=f"has no {key}"):
        make_queue(call, environment, **{key: [{"order": 1}]})


def test_a_queue_needs_an_environment(call):
    with pytest.raises(ApiError, match="needs a computeEnvironmentOrder"):
        call("CreateJobQueue", jobQueueName="none", priority=1)


def test_what_is_enabled_or_in_use_is_not_deleted(call, environment):
    make_queue(call, environment)
    with pytest.raises(ApiError, match="must be in the DISABLED state"):
        call("DeleteComputeEnvironment", computeEnvironment="env")
    call("UpdateComputeEnvironment", computeEnvironment="env", state="DISABLED")
    with pytest.raises(ApiError, match="existing relationship"):
        call("DeleteComputeEnvironment", computeEnvironment="env")
    call("UpdateJobQueue", jobQueue="team", state="DISABLED")
    call("DeleteJobQueue", jobQueue="team")
    call("DeleteComputeEnvironment", computeEnvironment="env")
    assert call("DescribeComputeEnvironments", computeEnvironments=["env"])["computeEnvironments"] == []


def test_a_queue_in_which_jobs_wait_is_not_deleted(call, batch):
    batch.send("a")
    call("UpdateJobQueue", jobQueue="queue", state="DISABLED")
    with pytest.raises(ApiError, match="existing relationship"):
        call("DeleteJobQueue", jobQueue="queue")
