"""Environments, queues and policies, made and unmade."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.resource_operations import ResourceOperations
from tests.support.batch_queues import HandBatch
from tests.support.hand_clock import HandClock

LIMIT = {"reason": "CAPACITY:X", "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "TERMINATE"}


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
        "CreateServiceEnvironment",
        serviceEnvironmentName="env",
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=[{"maxCapacity": 4, "capacityUnit": "NUM_INSTANCES"}],
    )["serviceEnvironmentArn"]


def make_queue(call, environment, name="team", **fields):
    order = [{"order": 1, "serviceEnvironment": environment}]
    return call("CreateJobQueue", **{"jobQueueName": name, "priority": 1, "serviceEnvironmentOrder": order, **fields})


def test_what_was_made_is_valid_and_described_as_it_was_asked_for(call, environment):
    make_queue(call, environment)
    (queue,) = call("DescribeJobQueues", jobQueues=["team"])["jobQueues"]
    assert (queue["state"], queue["status"], queue["computeEnvironmentOrder"]) == ("ENABLED", "VALID", [])
    assert queue["serviceEnvironmentOrder"] == [{"order": 1, "serviceEnvironment": environment}]
    (described,) = call("DescribeServiceEnvironments")["serviceEnvironments"]
    assert described["serviceEnvironmentArn"] == environment


def test_what_is_not_there_is_not_described_and_no_error(call):
    assert call("DescribeJobQueues", jobQueues=["nobody"]) == {"jobQueues": []}
    assert call("DescribeJobQueues", region="eu-west-1") == {"jobQueues": []}


def test_a_queue_of_an_environment_that_is_not_there_is_refused(call):
    with pytest.raises(ApiError, match="nowhere does not exist"):
        make_queue(call, "nowhere")


def test_a_queue_has_one_kind_of_environment(call, environment):
    with pytest.raises(ApiError, match="got 2"):
        make_queue(call, environment, computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "room"}])
    with pytest.raises(ApiError, match="got 0"):
        call("CreateJobQueue", jobQueueName="none", priority=1)


@pytest.mark.parametrize(
    ("changes", "wrong"), [({"maxTimeSeconds": 599}, "got 599"), ({"action": "CANCEL"}, "is TERMINATE, got CANCEL")]
)
def test_a_limit_of_time_is_one_that_batch_takes(call, environment, changes, wrong):
    make_queue(call, environment, jobStateTimeLimitActions=[LIMIT])
    with pytest.raises(ApiError, match=wrong):
        make_queue(call, environment, "other", jobStateTimeLimitActions=[{**LIMIT, **changes}])


def test_what_is_enabled_or_in_use_is_not_deleted(call, environment):
    make_queue(call, environment)
    with pytest.raises(ApiError, match="must be in the DISABLED state"):
        call("DeleteServiceEnvironment", serviceEnvironment="env")
    call("UpdateServiceEnvironment", serviceEnvironment="env", state="DISABLED")
    with pytest.raises(ApiError, match="existing relationship"):
        call("DeleteServiceEnvironment", serviceEnvironment="env")
    call("UpdateJobQueue", jobQueue="team", state="DISABLED")
    call("DeleteJobQueue", jobQueue="team")
    call("DeleteServiceEnvironment", serviceEnvironment="env")
    assert call("DescribeServiceEnvironments")["serviceEnvironments"] == []


def test_a_queue_in_which_jobs_wait_is_not_deleted(call, batch):
    batch.send("a")
    call("UpdateJobQueue", jobQueue="queue", state="DISABLED")
    with pytest.raises(ApiError, match="existing relationship"):
        call("DeleteJobQueue", jobQueue="queue")


def test_a_policy_is_kept_while_a_queue_goes_by_it(call, environment):
    policy = call("CreateSchedulingPolicy", name="fair", fairsharePolicy={"shareDistribution": []})["arn"]
    make_queue(call, environment, schedulingPolicyArn=policy)
    with pytest.raises(ApiError, match="existing relationship"):
        call("DeleteSchedulingPolicy", arn=policy)
    call("UpdateSchedulingPolicy", arn=policy, fairsharePolicy={"shareDecaySeconds": 60})
    (described,) = call("DescribeSchedulingPolicies", arns=[policy])["schedulingPolicies"]
    assert (described["name"], described["fairsharePolicy"]) == ("fair", {"shareDecaySeconds": 60})
    assert call("ListSchedulingPolicies") == {"schedulingPolicies": [{"arn": policy}]}
