"""Logs and metrics of jobs, as CloudWatch has them."""

import datetime
import time

import pytest

from raysm.local.server.log_files import MetricScanner
from raysm.local.server.records import JobRecord
from tests.support.sagemaker_server import TRAINING_LOGS

DEFINITIONS = {
    "algorithm": {
        "MetricDefinitions": [
            {"Name": "train:loss", "Regex": "loss=([0-9.e+-]+)"},
            {"Name": "epoch", "Regex": r"^epoch (\d+)"},
            {"Name": "never", "Regex": "nothing ([0-9]+)"},
            {"Name": "no-number", "Regex": "loss=(.*)$"},
        ]
    }
}


@pytest.fixture(scope="module")
def logged(server):
    """A job of two instances, and the logs client."""
    began_s = time.time()
    server.train("logged", "i=0; while [ $i -lt 3 ]; do echo line $i; i=$((i+1)); done", count=2)
    server.ended("logged")
    server.train("logged-2", "echo of another")
    server.ended("logged-2")
    return began_s, server.client("logs")


def streams_of(logs, job):
    found = logs.describe_log_streams(logGroupName=TRAINING_LOGS, logStreamNamePrefix=f"{job}/")
    return [stream["logStreamName"] for stream in found["logStreams"]]


def test_streams_are_named_by_job_host_and_second(logged):
    began_s, logs = logged
    names = streams_of(logs, "logged")
    assert [name.rpartition("-")[0] for name in names] == ["logged/algo-1", "logged/algo-2"]
    assert all(began_s - 1 <= int(name.rpartition("-")[2]) <= time.time() for name in names)


def test_our_groups_stand_among_the_users_own_which_are_motos(logged):
    _, logs = logged
    logs.create_log_group(logGroupName="/mine")
    names = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
    assert names == ["/aws/sagemaker/ProcessingJobs", TRAINING_LOGS, "/mine"]


def test_text_that_is_not_utf_8_and_empty_lines_pass(server):
    server.train("odd", r"printf 'gr\303\274n\n\n\377bad\nno newline'")
    server.ended("odd")
    assert [text for _, text in server.lines("odd")] == ["grün", " ", "\ufffdbad", "no newline"]


def test_the_last_value_of_each_metric_is_in_the_job_and_all_are_in_cloudwatch(server):
    server.train("measured", "echo epoch 1 loss=0.5; echo epoch 2 loss=2.5e-1; echo the epoch 3", **DEFINITIONS)
    job = server.ended("measured")
    final = {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]}
    assert final == {"train:loss": 0.25, "epoch": 2.0, "no-number": 0.25}
    now = datetime.datetime.now(datetime.UTC)
    found = server.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="train:loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": "measured"}],
        StartTime=now - datetime.timedelta(minutes=10),
        EndTime=now + datetime.timedelta(minutes=1),
        Period=3600,
        Statistics=["Sum", "SampleCount"],
    )
    assert sum(point["Sum"] for point in found["Datapoints"]) == 0.75
    assert sum(point["SampleCount"] for point in found["Datapoints"]) == 2


def test_a_loss_that_diverges_is_passed_over():
    record = JobRecord(
        kind="training", name="a-job", arn="arn", region="eu-west-1", request={}, created_s=1.0, modified_s=1.0
    )
    metrics = MetricScanner(None, record, [{"Name": "loss", "Regex": r"loss=(\S+)"}])
    for text in ("loss=2.0", "loss=nan", "loss=inf", "loss=-Infinity"):
        metrics.line(text)
    assert [metric["Value"] for metric in metrics.last()] == [2.0]
