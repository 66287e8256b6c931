"""What the embedded server does not emulate it refuses at once, in the form of each service, and names it."""

import pytest
from botocore.exceptions import ClientError

TUNING = {
    "HyperParameterTuningJobName": "tuned",
    "HyperParameterTuningJobConfig": {"Strategy": "Random", "ResourceLimits": {"MaxParallelTrainingJobs": 1}},
}

OPERATIONS = [
    ("sagemaker", "create_hyper_parameter_tuning_job", TUNING, "CreateHyperParameterTuningJob; run the sweep as one"),
    ("sagemaker", "describe_space", {"DomainId": "d-1", "SpaceName": "a"}, "DescribeSpace of the service sagemaker"),
    ("sagemaker", "get_search_suggestions", {"Resource": "TrainingJob"}, "GetSearchSuggestions"),
    ("logs", "describe_query_definitions", {}, "DescribeQueryDefinitions of the service logs"),
    ("ssm", "describe_inventory_deletions", {}, "DescribeInventoryDeletions of the service ssm"),
    ("batch", "list_consumable_resources", {}, "ListConsumableResources"),
    ("iam", "get_service_last_accessed_details", {"JobId": "a" * 36}, "GetServiceLastAccessedDetails"),
    ("service-quotas", "list_services", {}, "ListServices of the service servicequotas"),
    ("bedrock", "list_imported_models", {}, "GET /imported-models of the service bedrock"),
    ("pricing", "describe_services", {}, "DescribeServices of the service pricing"),
    ("sagemaker", "describe_experiment", {"ExperimentName": "none"}, "DescribeExperiment .* with these parameters"),
    ("ec2", "describe_fpga_images", {}, "DescribeFpgaImages of the service ec2"),
    ("cloudwatch", "describe_anomaly_detectors", {}, "DescribeAnomalyDetectors"),
]


@pytest.mark.parametrize(("service", "method", "parameters", "named"), OPERATIONS)
def test_an_operation_that_is_not_emulated_is_refused_by_name(server, service, method, parameters, named):
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


def test_a_search_finds_the_jobs_that_there_are(server):
    server.train("found", "exit 0", Tags=[{"Key": "team", "Value": "red"}])
    server.ended("found")
    filters = [{"Name": "Tags.team", "Operator": "Equals", "Value": "red"}]
    answer = server.sm.search(Resource="TrainingJob", SearchExpression={"Filters": filters})
    (result,) = answer["Results"]
    assert result["TrainingJob"]["TrainingJobName"] == "found"
    assert result["TrainingJob"]["TrainingJobStatus"] == "Completed"


def test_the_last_event_of_a_log_stream_is_the_one_it_says(server):
    server.train("two-lines", "echo one; sleep 0.3; echo two; exit 0")
    server.ended("two-lines")
    logs = server.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    (stream,) = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="two-lines/")["logStreams"]
    events = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)[
        "events"
    ]
    assert [event["message"] for event in events][-1] == "two"
    assert stream["firstEventTimestamp"] == events[0]["timestamp"]
    assert stream["lastEventTimestamp"] == events[-1]["timestamp"]
