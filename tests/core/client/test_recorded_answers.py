"""What SageMaker answered others, in public, replayed by botocore's Stubber through the client."""

import contextlib
import datetime

import pytest
from botocore.stub import Stubber

from raysm import errors
from raysm.core.client.checks import check
from raysm.core.client.job.description import Status, read
from raysm.core.client.logs.stream import LogReader
from raysm.core.client.plan import Plan
from raysm.core.client.service import Service
from raysm.core.protocol.job_api import PROCESSING, TRAINING
from raysm.core.protocol.service_rules import breaches
from raysm.local.server.validation import ApiError, check_rules
from tests.support.api_requests import processing_parameters, training_parameters
from tests.support.recorded_answers import ANSWERS, sourced
from tests.support.sagemaker import REGION, SESSION, aws

TIME = datetime.datetime(2025, 12, 26, 5, 10, tzinfo=datetime.UTC)


@contextlib.contextmanager
def stubbed(name):
    """Yield a Service whose one client is stubbed, and the Stubber."""
    client = SESSION.client(name, region_name=REGION)
    with Stubber(client) as stubber:
        yield Service(aws(), clients={name: client}.__getitem__), stubber
        stubber.assert_no_pending_responses()


def answer(**fields):
    """Return what Describe has to say of every training job, with ``fields``."""
    common = training_parameters(
        TrainingJobArn="arn:aws:sagemaker:eu-west-1:123456789012:training-job/a-job"
    )
    del common["RoleArn"]
    changes = {"TrainingJobStatus": "Failed", "SecondaryStatus": "Failed", "CreationTime": TIME}
    artifacts = {"ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/out/a-job/output/model/"}}
    return {**common, **changes, **artifacts, **fields}


def described(**fields):
    """Return a job as the client reads what Describe answers."""
    with stubbed("sagemaker") as (service, stubber):
        stubber.add_response(
            "describe_training_job", answer(**fields), {"TrainingJobName": "a-job"}
        )
        return read(TRAINING, service.describe(TRAINING, "a-job"))


@pytest.mark.parametrize("recorded", sourced(ANSWERS["reason"]))
def test_a_reason_that_was_seen_is_told_without_the_services_own_word_for_the_job(recorded):
    job = described(FailureReason=recorded["answer"])
    assert (job.status, job.reason) == (Status.FAILED, recorded["read"])


def test_of_the_streams_that_are_documented_those_of_instances_alone_are_read():
    recorded = ANSWERS["logs"]
    group, job = TRAINING.log_group, recorded["job"]
    instances = [stream for stream in recorded["streams"] if not stream.endswith("/ssm")]
    with stubbed("logs") as (service, stubber):
        listed = {"logStreams": [{"logStreamName": stream} for stream in recorded["streams"]]}
        stubber.add_response(
            "describe_log_streams",
            listed,
            {"logGroupName": group, "logStreamNamePrefix": f"{job}/"},
        )
        for stream in instances:
            place = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
            events = [{"timestamp": 1_680_535_300_000, "message": stream}]
            stubber.add_response(
                "get_log_events", {"events": events, "nextForwardToken": "f/1"}, place
            )
        # One page of each: a call for a third stream would be one that the Stubber does not expect.
        lines = list(LogReader(service, TRAINING, job).new_lines(whole=False))
    assert [(line.host, line.text) for line in lines] == list(
        zip(recorded["hosts"], instances, strict=True)
    )


@pytest.mark.parametrize("recorded", sourced(ANSWERS["error"]))
def test_an_error_that_was_seen_says_what_to_do(recorded):
    parameters = recorded.get("parameters", training_parameters())
    with stubbed("sagemaker") as (service, stubber):
        stubber.add_client_error(recorded["operation"], recorded["code"], recorded["message"])
        with pytest.raises(getattr(errors, recorded["kind"]), match=recorded["words"]) as caught:
            service.call(recorded["service"], recorded["operation"], **parameters)
    assert recorded["message"] in str(caught.value)
    assert (caught.value.code, caught.value.is_transient) == (recorded["code"], False)


@pytest.mark.parametrize("recorded", sourced(ANSWERS["refusal"]))
def test_what_aws_refused_somebody_is_refused_by_the_client_and_by_the_embedded_server(recorded):
    request = training_parameters(**recorded["request"])
    assert len(list(breaches(TRAINING, request))) == 1
    with pytest.raises(errors.InvalidRequest):
        check(Plan(api=TRAINING, request=request), takes_files=False)
    with pytest.raises(ApiError):
        check_rules(TRAINING, request)


@pytest.mark.parametrize(("answered", "reason"), ANSWERS["processing"]["reasons"].items())
def test_a_processing_job_that_left_no_words_has_its_exit_code_for_a_reason(answered, reason):
    parameters = processing_parameters(
        ProcessingJobArn="arn:aws:sagemaker:eu-west-1:123456789012:processing-job/a-job",
        ProcessingJobStatus="Failed",
        CreationTime=TIME,
        FailureReason=answered,
    )
    with stubbed("sagemaker") as (service, stubber):
        stubber.add_response("describe_processing_job", parameters, {"ProcessingJobName": "a-job"})
        assert read(PROCESSING, service.describe(PROCESSING, "a-job")).reason == reason
