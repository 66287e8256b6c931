"""What the embedded server does not emulate it refuses at once, in the form of each service, and names it."""

import datetime

import pytest
from botocore.exceptions import ClientError

from tests.support.sagemaker_server import ROLE, training_request


@pytest.fixture(scope="module")
def twelve(server):
    """Twelve ended jobs; number 3 failed."""
    names = [server.train(f"job-{i:02}", "exit 1" if i == 3 else "exit 0") for i in range(12)]
    for name in names:
        server.ended(name)
    return names


def listed(server, **fields):
    found = server.sm.list_training_jobs(NameContains="job-", MaxResults=100, **fields)[
        "TrainingJobSummaries"
    ]
    return [summary["TrainingJobName"] for summary in found]


def test_jobs_come_in_pages_newest_first(server, twelve):
    pages = server.sm.get_paginator("list_training_jobs").paginate(
        NameContains="job-", PaginationConfig={"PageSize": 5}
    )
    pages = [[job["TrainingJobName"] for job in page["TrainingJobSummaries"]] for page in pages]
    assert [len(page) for page in pages] == [5, 5, 2]
    assert sum(pages, []) == twelve[::-1]


@pytest.mark.usefixtures("twelve")
def test_jobs_are_sorted_and_filtered(server):
    twelve = [f"job-{i:02}" for i in range(12)]
    assert listed(server, SortBy="Name", SortOrder="Ascending") == twelve
    assert listed(server, SortBy="CreationTime", SortOrder="Descending") == twelve[::-1]
    assert listed(server, SortBy="Status", SortOrder="Descending")[0] == "job-03"
    assert listed(server, StatusEquals="Failed") == ["job-03"]
    created = server.describe("job-06")["CreationTime"]
    soon = datetime.timedelta(milliseconds=1)
    assert listed(server, CreationTimeAfter=created + soon) == twelve[:6:-1]
    assert listed(server, CreationTimeBefore=created + soon) == twelve[6::-1]
    assert listed(server, LastModifiedTimeBefore=created - datetime.timedelta(hours=1)) == []
    assert listed(server, WarmPoolStatusEquals="Available") == []


@pytest.mark.usefixtures("twelve")
def test_a_page_is_taken_before_it_is_filtered_by_a_status(server):
    ask = {"NameContains": "job-", "StatusEquals": "Failed", "MaxResults": 5}
    first = server.sm.list_training_jobs(**ask)
    assert first["TrainingJobSummaries"] == []
    second = server.sm.list_training_jobs(**ask, NextToken=first["NextToken"])
    assert [job["TrainingJobName"] for job in second["TrainingJobSummaries"]] == ["job-03"]


@pytest.mark.usefixtures("twelve")
def test_a_page_continues_after_a_job_that_no_longer_passes_the_filter(server):
    ask = {"NameContains": "job-", "SortBy": "Name", "SortOrder": "Ascending"}
    first = server.sm.list_training_jobs(**ask, MaxResults=2)
    ask["LastModifiedTimeBefore"] = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rest = server.sm.list_training_jobs(**ask, NextToken=first["NextToken"])
    assert rest["TrainingJobSummaries"] == []


@pytest.mark.usefixtures("twelve")
def test_a_name_is_taken_for_good(server):
    with pytest.raises(server.sm.exceptions.ResourceInUse, match="training-job/job-00"):
        server.train("job-00", "exit 0")


def test_a_job_that_is_not_there_is_not_found(server):
    for call in (server.sm.describe_training_job, server.sm.stop_training_job):
        with pytest.raises(ClientError) as caught:
            call(TrainingJobName="nobody")
        assert caught.value.response["Error"]["Code"] == "ValidationException"
        assert "Requested resource not found" in caught.value.response["Error"]["Message"]


def test_tags_are_added_listed_and_deleted(server):
    server.train("tagged", "exit 0", Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}])
    arn = server.ended("tagged")["TrainingJobArn"]
    assert "Tags" not in server.describe("tagged")
    server.sm.add_tags(
        ResourceArn=arn, Tags=[{"Key": "a", "Value": "2"}, {"Key": "c", "Value": "3"}]
    )
    server.sm.delete_tags(ResourceArn=arn, TagKeys=["b", "nothing"])
    pages = server.sm.get_paginator("list_tags").paginate(
        ResourceArn=arn, PaginationConfig={"PageSize": 50}
    )
    assert [tag for page in pages for tag in page["Tags"]] == [
        {"Key": "a", "Value": "2"},
        {"Key": "c", "Value": "3"},
    ]
    many = [{"Key": f"k{i}", "Value": ""} for i in range(49)]
    with pytest.raises(ClientError, match="ResourceLimitExceeded.* 50 .* 51"):
        server.sm.add_tags(ResourceArn=arn, Tags=many)


def test_a_running_job_can_be_updated_and_not_deleted(server):
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    server.train(
        "updated", "trap 'exit 0' TERM; while :; do sleep 0.05; done", ResourceConfig=resources
    )
    server.reached("updated", "Training")
    server.sm.update_training_job(
        TrainingJobName="updated",
        ResourceConfig={"KeepAlivePeriodInSeconds": 60},
        RemoteDebugConfig={"EnableRemoteDebug": True},
    )
    job = server.describe("updated")
    assert job["ResourceConfig"] == {**resources, "KeepAlivePeriodInSeconds": 60}
    assert job["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    with pytest.raises(server.sm.exceptions.ResourceInUse):
        server.sm.delete_training_job(TrainingJobName="updated")
    server.sm.stop_training_job(TrainingJobName="updated")
    server.ended("updated")
    with pytest.raises(ClientError, match="cannot be updated"):
        server.sm.update_training_job(
            TrainingJobName="updated", RemoteDebugConfig={"EnableRemoteDebug": False}
        )
    server.sm.delete_training_job(TrainingJobName="updated")
    with pytest.raises(ClientError, match="not found"):
        server.describe("updated")


def test_a_description_has_all_that_was_asked_for(server):
    request = training_request(
        "described",
        "exit 0",
        HyperParameters={"a": "1"},
        Environment={"B": "2"},
        RetryStrategy={"MaximumRetryAttempts": 3},
        EnableNetworkIsolation=True,
        EnableInterContainerTrafficEncryption=True,
        VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    )
    server.sm.create_training_job(**request)
    job = server.ended("described")
    assert {key: job[key] for key in request} == request
    assert job["EnableManagedSpotTraining"] is False
    assert job["RoleArn"] == ROLE


TUNING = {
    "HyperParameterTuningJobName": "tuned",
    "HyperParameterTuningJobConfig": {
        "Strategy": "Random",
        "ResourceLimits": {"MaxParallelTrainingJobs": 1},
    },
}

OPERATIONS = [
    (
        "sagemaker",
        "create_hyper_parameter_tuning_job",
        TUNING,
        "CreateHyperParameterTuningJob; run the sweep as one",
    ),
    ("sagemaker", "search", {"Resource": "TrainingJob"}, "Search; use ListTrainingJobs"),
    (
        "sagemaker",
        "describe_space",
        {"DomainId": "d-1", "SpaceName": "a"},
        "DescribeSpace of the service sagemaker",
    ),
    ("batch", "list_consumable_resources", {}, "ListConsumableResources"),
    ("service-quotas", "list_services", {}, "ListServices of the service servicequotas"),
    ("bedrock", "list_imported_models", {}, "GET /imported-models of the service bedrock"),
    (
        "sagemaker",
        "describe_experiment",
        {"ExperimentName": "none"},
        "DescribeExperiment .* with these parameters",
    ),
    (
        "iam",
        "get_service_last_accessed_details",
        {"JobId": "a" * 36},
        "GetServiceLastAccessedDetails",
    ),
]


@pytest.mark.parametrize(("service", "method", "parameters", "named"), OPERATIONS)
def test_an_operation_that_is_not_emulated_is_refused_by_name(
    server, service, method, parameters, named
):
    with pytest.raises(ClientError, match=f"does not emulate .*{named}") as raised:
        getattr(server.client(service), method)(**parameters)
    answer = raised.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert answer["Error"]["Code"] == "NotImplementedException"


def test_an_object_that_is_not_there_is_still_what_s3_says(server):
    for method, code in (("get_object", "NoSuchKey"), ("head_object", "404")):
        with pytest.raises(ClientError) as raised:
            getattr(server.s3, method)(Bucket="test-bucket", Key="none")
        assert raised.value.response["Error"]["Code"] == code
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_the_last_event_of_a_log_stream_is_the_one_it_says(server):
    server.train("two-lines", "echo one; sleep 0.3; echo two; exit 0")
    server.ended("two-lines")
    logs = server.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    (stream,) = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="two-lines/")[
        "logStreams"
    ]
    events = logs.get_log_events(
        logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
    )["events"]
    assert [event["message"] for event in events][-1] == "two"
    assert stream["firstEventTimestamp"] == events[0]["timestamp"]
    assert stream["lastEventTimestamp"] == events[-1]["timestamp"]
