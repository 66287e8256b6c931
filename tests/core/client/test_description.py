"""What Describe answers, read into one value."""

from datetime import UTC, datetime, timedelta

import pytest

from raysm.core.client.job.description import SecondaryStatus, Status, outputs_of, read
from raysm.core.protocol.job_api import PROCESSING, TRAINING


def test_a_status_that_nobody_knows_is_unknown_with_a_warning(remote, job):
    remote.sagemaker.jobs[job.name]["answer"] |= {
        "TrainingJobStatus": "Dreaming",
        "SecondaryStatus": "Snoring",
    }
    with pytest.warns(RuntimeWarning, match="does not know"):
        assert (job.status, job.secondary_status, job.done()) == (
            Status.UNKNOWN,
            SecondaryStatus.UNKNOWN,
            False,
        )


def test_every_status_of_the_service_model_is_known():
    from botocore.loaders import Loader

    shapes = Loader().load_service_model("sagemaker", "service-2")["shapes"]
    known = {status.value for status in Status} | {status.value for status in SecondaryStatus}
    for shape in ("TrainingJobStatus", "ProcessingJobStatus", "SecondaryStatus"):
        assert set(shapes[shape]["enum"]) <= known, shape


def training(**fields):
    return read(
        TRAINING,
        {"TrainingJobName": "a", "TrainingJobArn": "arn", "TrainingJobStatus": "Failed", **fields},
    )


def processing(**fields):
    names = {"ProcessingJobName": "a", "ProcessingJobArn": "arn", "ProcessingJobStatus": "Failed"}
    return read(PROCESSING, {**names, **fields})


def test_outputs_lie_where_the_artifacts_do_and_before_there_are_any_where_they_will():
    config = {"OutputDataConfig": {"S3OutputPath": "s3://b/out/"}}
    assert outputs_of(training(**config)) == "s3://b/out/a/output"
    artifacts = {"ModelArtifacts": {"S3ModelArtifacts": "s3://b/else/a/output/model.tar.gz"}}
    assert outputs_of(training(**config, **artifacts)) == "s3://b/else/a/output"


def test_a_processing_job_whose_reason_the_service_says_in_general_has_the_words_of_its_exit_message_first():
    general = "AlgorithmError: See job logs for more information"
    job = processing(ExitMessage="ValueError: no such layer", FailureReason=general)
    assert job.reason == "ValueError: no such layer\nSee job logs for more information"
    wrapped = "AlgorithmError: ValueError: no such layer, exit code: 1"
    assert (
        processing(ExitMessage="ValueError: no such layer", FailureReason=wrapped).reason
        == job.reason.split("\n")[0]
    )


def test_of_each_interruption_it_is_known_for_how_long_the_job_had_worked():
    begun = datetime(2026, 11, 24, 12, tzinfo=UTC)

    def phase(status, after_s):
        return {"Status": status, "StartTime": begun + timedelta(seconds=after_s)}

    phases = [
        ("Starting", 0),
        ("Training", 10),
        ("Interrupted", 70),
        ("Starting", 75),
        ("Training", 80),
    ]
    told = [
        phase(*each)
        for each in [*phases, ("Interrupted", 85), ("Training", 90), ("Completed", 100)]
    ]
    assert training(SecondaryStatusTransitions=told).interruptions == (60.0, 5.0)
    assert training(SecondaryStatusTransitions=told[:2]).interruptions == ()
