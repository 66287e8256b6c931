"""The classes of ends answer for themselves."""

import pytest

from raysm.client.job.description import Description, SecondaryStatus, Status, read
from raysm.contract.job_api import TRAINING
from raysm.errors import ServiceError
from raysm.grid.endings import classify_end, classify_refusal, parse_quota, same_reason, shortened

LIMIT = (
    "create_training_job: ResourceLimitExceeded: The account-level service limit 'ml.p4d.24xlarge for spot training "
    "job usage' is 2 Instances, with current utilization of 1 Instances and a request delta of 2 Instances."
)


def job(status, reason="", secondary=SecondaryStatus.NONE, phases=("Starting", "Pending", "Training")):
    transitions = tuple((phase, None, None) for phase in phases)
    return Description(
        name="j", arn="", api=TRAINING, status=status, reason=reason, secondary=secondary, transitions=transitions
    )


@pytest.mark.parametrize(
    ("code", "text", "name"),
    [
        ("ResourceLimitExceeded", LIMIT, "QUOTA"),
        ("ThrottlingException", "Rate exceeded", "THROTTLED"),
        ("TooManyRequestsException", "", "THROTTLED"),
        ("ClientError", "Rate exceeded", "THROTTLED"),
        ("ResourceInUse", "Training job names must be unique", "CLASH"),
        ("ValidationException", "no such image", "INVALID"),
        ("", "Parameter validation failed: Unknown parameter in input", "INVALID"),
        ("AccessDeniedException", "not authorized to perform sagemaker:CreateTrainingJob", "DENIED"),
        ("", "no AWS credentials were found", "DENIED"),
        ("SomethingNew", "which nobody has seen", "UNKNOWN"),
    ],
)
def test_a_refusal_has_the_class_of_its_words(code, text, name):
    assert classify_refusal(ServiceError(text, code=code)).ending.name == name


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (
            "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different",
            "CAPACITY",
        ),
        ("There is not enough capacity for instance type ml.p4d.24xlarge", "CAPACITY"),
        ("InsufficientInstanceCapacity: we currently do not have sufficient capacity", "CAPACITY"),
        ("InternalServerError: We encountered an internal error. Please try again.", "SERVICE"),
        ("AlgorithmError: RuntimeError: CUDA error, exit code: 1", "USER"),
        ("AlgorithmError: SIGKILL, exit code: 137", "USER"),
        ("AlgorithmError: myapp.errors.ValueErrorLike: x, exit code: 1", "USER"),
        ("AlgorithmError: NameError: x, exit code: 1", "ERROR"),
        ("AlgorithmError: ValueError\nTraceback (most recent call last)", "ERROR"),
        ("AlgorithmError: rank 1 on algo-2: KeyError: 'lr', exit code: 1", "ERROR"),
        ("AlgorithmError: SystemExit: 2, raised at argparse.py:2617, exit code: 2", "ERROR"),
        ("AlgorithmError: rank 0 on algo-1: exit code 2: ddp.py: error: unrecognized arguments: --epoch", "ERROR"),
        ("AlgorithmError: SystemExit: 2, raised at train.py:7, exit code: 2", "USER"),
        ("AlgorithmError: BufferError: not enough capacity for 4096 items, exit code: 1", "USER"),
        ("AlgorithmError: An error occurred (InternalError): We encountered an internal error., exit code: 1", "USER"),
        ("ClientError: Data download failed: no such key", "USER"),
        ("Something quite new", "UNKNOWN"),
    ],
)
def test_a_failure_has_the_class_of_its_words(reason, name):
    verdict = classify_end(job(Status.FAILED, reason))
    assert (verdict.ending.name, verdict.reason) == (name, reason)


@pytest.mark.parametrize(
    ("secondary", "phases", "wish", "name"),
    [
        (SecondaryStatus.MAX_RUNTIME_EXCEEDED, ("Training",), "", "TIME"),
        (SecondaryStatus.MAX_WAIT_EXCEEDED, ("Pending",), "", "CAPACITY"),
        # Batch's documentation has jobs without capacity end so.
        (SecondaryStatus.STOPPED, ("Starting", "Pending"), "", "CAPACITY"),
        (SecondaryStatus.STOPPED, ("Starting", "Pending", "Stopping"), "", "STOPPED"),
        (SecondaryStatus.STOPPED, ("Pending", "Stopping"), "patience", "CAPACITY"),
        (SecondaryStatus.STOPPED, ("Pending", "Training", "Stopping"), "user", "STOPPED"),
    ],
)
def test_a_stop_has_the_class_of_what_came_before_it(secondary, phases, wish, name):
    assert classify_end(job(Status.STOPPED, secondary=secondary, phases=phases), wish).ending.name == name


def test_a_quota_is_learned_from_the_words_of_its_refusal():
    assert parse_quota(LIMIT) == (2, 1)
    assert parse_quota("no such words") is None


def test_two_jobs_fail_for_one_reason_whatever_their_hosts_and_numbers():
    first = "AlgorithmError: KeyError: 'lr' at algo-1:1234, exit code: 1\nmore"
    assert same_reason(first) == same_reason("AlgorithmError: KeyError: 'lr' at algo-2:99, exit code: 1")
    assert same_reason(first) != same_reason("AlgorithmError: MemoryError")
    assert same_reason("") == ""


def test_a_long_reason_keeps_its_last_line():
    reason = "ValueError: first line\n" + "x" * 2000 + "\nKeyError: 'zip'"
    short = shortened(reason, 100)
    assert len(short) == 100
    assert short.startswith("ValueError: first line … xxx")
    assert short.endswith("\nKeyError: 'zip'")
    assert shortened("short", 100) == "short"


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("AlgorithmError: KeyError: 'lr', exit code: 1", "ERROR"),
        ("AlgorithmError: , exit code: 137", "USER"),
        ("ClientError: Data download failed", "USER"),
        ("InternalServerError: We encountered an internal error. Please try again.", "SERVICE"),
    ],
)
def test_an_end_that_the_service_tells_keeps_its_class_though_people_read_less_of_it(reason, name):
    answer = {"TrainingJobName": "j", "TrainingJobArn": "", "TrainingJobStatus": "Failed", "FailureReason": reason}
    assert classify_end(read(TRAINING, answer)).ending.name == name
