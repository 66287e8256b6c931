"""Jobs of containers and their definitions, before anything runs."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.program_operations import ProgramOperations
from tests.support.batch_queues import HandBatch
from tests.support.hand_clock import HandClock


class Asleep:
    """Carries nothing out."""

    def wake(self):
        pass


@pytest.fixture
def batch(tmp_path):
    return HandBatch(tmp_path, HandClock())


@pytest.fixture
def call(batch):
    owner = ProgramOperations(batch.jobs, batch.resources, Asleep())

    def ask(operation, region="us-east-1", **request):
        return owner.operations[operation](request, region)

    return ask


def define(call, name="d", **fields):
    container = {"image": "any:1", "command": ["true"], **fields.pop("container", {})}
    request = {"jobDefinitionName": name, "type": "container", "containerProperties": container, **fields}
    return call("RegisterJobDefinition", **request)["jobDefinitionArn"]


def submit(call, definition="d", **fields):
    return call("SubmitJob", **{"jobName": "n", "jobQueue": "queue", "jobDefinition": definition, **fields})["jobId"]


def test_each_definition_of_a_name_is_a_revision_and_the_latest_active_one_is_taken(call, batch):
    arns = [define(call), define(call)]
    assert [arn.rpartition(":")[2] for arn in arns] == ["1", "2"]
    assert batch.job(submit(call)).request["jobDefinition"] == arns[1]
    call("DeregisterJobDefinition", jobDefinition=arns[1])
    assert batch.job(submit(call)).request["jobDefinition"] == arns[0]
    assert define(call).endswith(":3")
    listed = call("DescribeJobDefinitions", jobDefinitionName="d", status="ACTIVE")["jobDefinitions"]
    assert [one["revision"] for one in listed] == [1, 3]


def test_what_cannot_run_here_is_refused_when_it_is_defined(call):
    with pytest.raises(ApiError, match="type container with containerProperties, got type 'multinode'"):
        call("RegisterJobDefinition", jobDefinitionName="d", type="multinode", nodeProperties={})


def test_a_definition_of_fargate_keeps_its_address_and_one_of_ec2_may_have_none(call):
    network = {"networkConfiguration": {"assignPublicIp": "ENABLED"}}
    define(call, container=network, platformCapabilities=["FARGATE"])
    (defined,) = call("DescribeJobDefinitions", jobDefinitionName="d")["jobDefinitions"]
    assert defined["containerProperties"]["networkConfiguration"] == network["networkConfiguration"]
    (job,) = call("DescribeJobs", jobs=[submit(call)])["jobs"]
    assert job["container"]["networkConfiguration"] == network["networkConfiguration"]
    with pytest.raises(ApiError, match="networkConfiguration is of FARGATE alone, got platformCapabilities EC2"):
        define(call, container=network)


def test_a_job_has_what_its_definition_says_unless_it_says_it_itself(call, batch):
    define(call, retryStrategy={"attempts": 3}, parameters={"a": "1", "b": "1"}, timeout={"attemptDurationSeconds": 60})
    job = batch.job(submit(call, retryStrategy={"attempts": 2}, parameters={"b": "2"}))
    assert job.request["retryStrategy"] == {"attempts": 2}
    assert job.request["parameters"] == {"a": "1", "b": "2"}
    assert job.request["timeout"] == {"attemptDurationSeconds": 60}


def test_an_array_has_a_child_for_each_index(call, batch):
    define(call)
    array = submit(call, arrayProperties={"size": 3})
    assert [child.id for child in batch.jobs.children(array)] == [f"{array}:{index}" for index in range(3)]
    listed = call("ListJobs", arrayJobId=array, jobStatus="SUBMITTED")["jobSummaryList"]
    assert [item["arrayProperties"]["index"] for item in listed] == [2, 1, 0]
    assert [item["jobId"] for item in call("ListJobs", jobQueue="queue", jobStatus="SUBMITTED")["jobSummaryList"]] == [
        array
    ]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"arrayProperties": {"size": 1}}, "2 to 10000, got 1"),
        ({"arrayProperties": {"size": 10_001}}, "got 10001"),
        ({"retryStrategy": {"attempts": 11}}, "got 11"),
        ({"dependsOn": [{"jobId": "nobody"}]}, "Job nobody does not exist"),
        ({"dependsOn": [{"type": "N_TO_N"}]}, "names a jobId"),
        ({"nodeOverrides": {"numNodes": 2}}, "has no nodeOverrides"),
        ({"containerOverrides": {"environment": [{"name": "A", "value": "x" * 9000}]}}, "at most 8192"),
        ({"jobDefinition": "nobody"}, "JobDefinition nobody does not exist"),
    ],
)
def test_a_job_that_cannot_be_is_refused_and_leaves_nothing(call, batch, fields, wrong):
    define(call)
    with pytest.raises(ApiError, match=wrong):
        submit(call, **fields)
    assert batch.jobs.all() == []


def test_arrays_that_wait_for_each_other_child_by_child_are_of_one_size(call):
    define(call)
    first = submit(call, arrayProperties={"size": 3})
    with pytest.raises(ApiError, match="has 3, this one 2"):
        submit(call, arrayProperties={"size": 2}, dependsOn=[{"jobId": first, "type": "N_TO_N"}])


def test_to_end_what_is_not_there_is_no_error(call):
    assert call("TerminateJob", jobId="nobody", reason="x") == {}
