"""Every way in which a job ends, and the statuses on it, over HTTP with boto3."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from raysm.core.protocol.names import NOT_KEPT
from tests.support.sagemaker_server import (
    BUCKET,
    SOON_S,
    channel,
    instances_of,
    spot,
    statuses,
    until,
)

UNTIL_SIGTERM = "trap 'echo stopping; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def checkpoints(name):
    return {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/{name}"}}


def went_through(job):
    """Return its statuses but that of waiting for cores: the job before may have ended just now."""
    return [status for status in statuses(job) if status != "Pending"]


def test_a_completed_job_went_through_aws_statuses_in_their_order(server):
    server.train("completed", "exit 0")
    waiter = server.sm.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName="completed", WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    job = server.describe("completed")
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Completed"
    assert went_through(job) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert "FailureReason" not in job
    times = [(item["StartTime"], item["EndTime"]) for item in job["SecondaryStatusTransitions"]]
    assert all(ended == begun for (_, ended), (begun, _) in zip(times, times[1:], strict=False))
    assert (
        job["CreationTime"]
        <= job["TrainingStartTime"]
        <= job["TrainingEndTime"]
        <= job["LastModifiedTime"]
    )
    assert job["TrainingTimeInSeconds"] >= job["BillableTimeInSeconds"] >= 1


def test_a_failed_job_says_why_in_aws_words_of_at_most_1024_characters(server):
    words = "AlgorithmError: ValueError: " + "x" * 2000
    write = "(printf 'ValueError: '; head -c 2000 /dev/zero | tr '\\0' x) > /opt/ml/output/failure"
    server.train("failed", f"{write}; exit 3")
    job = server.ended("failed")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == words[:1024]
    assert went_through(job) == ["Starting", "Downloading", "Training", "Uploading", "Failed"]
    assert "ModelArtifacts" not in job
    with pytest.raises(Exception, match="Failed"):
        server.sm.get_waiter("training_job_completed_or_stopped").wait(TrainingJobName="failed")


def test_a_job_whose_checkpoints_cannot_all_be_kept_says_so_in_its_statuses(server):
    no_key = "printf x > /opt/ml/checkpoints/$(printf 'a\\377')"
    server.train("not-kept", no_key, **checkpoints("not-kept"))
    job = server.ended("not-kept")
    assert job["TrainingJobStatus"] == "Completed"
    messages = {item["Status"]: item["StatusMessage"] for item in job["SecondaryStatusTransitions"]}
    assert NOT_KEPT in messages["Uploading"]


def test_a_job_without_its_data_fails_before_it_starts(server):
    server.train("no-data", "exit 0", InputDataConfig=[channel("c", f"s3://{BUCKET}/nothing/")])
    job = server.ended("no-data")
    assert went_through(job) == ["Starting", "Downloading", "Failed"]
    assert "channel 'c'" in job["FailureReason"]
    assert "No S3 objects found" in job["FailureReason"]
    assert "TrainingStartTime" not in job


def test_a_stopped_job_hears_sigterm_and_what_it_left_is_uploaded(server):
    script = "trap 'echo saved > /opt/ml/model/state; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    server.train("stopped", script, count=2, OutputDataConfig=uncompressed("stopped"))
    server.says("stopped", "ready")
    server.sm.stop_training_job(TrainingJobName="stopped")
    assert server.describe("stopped")["TrainingJobStatus"] in ("Stopping", "Stopped")
    job = server.ended("stopped")
    assert job["TrainingJobStatus"] == "Stopped"
    assert went_through(job) == [
        "Starting",
        "Downloading",
        "Training",
        "Stopping",
        "Uploading",
        "Stopped",
    ]
    assert server.get("out/stopped/stopped/output/model/state") == b"saved\n"
    with pytest.raises(ClientError, match="in status Stopped"):
        server.sm.stop_training_job(TrainingJobName="stopped")


def uncompressed(folder):
    return {"S3OutputPath": f"s3://{BUCKET}/out/{folder}", "CompressionType": "NONE"}


def test_a_job_that_runs_too_long_is_stopped_and_its_model_uploaded(server):
    script = "trap 'echo saved > /opt/ml/model/state; exit 0' TERM; while :; do sleep 0.05; done"
    server.train(
        "long",
        script,
        StoppingCondition={"MaxRuntimeInSeconds": 5},
        OutputDataConfig=uncompressed("long"),
    )
    job = server.ended("long")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert went_through(job) == [
        "Starting",
        "Downloading",
        "Training",
        "Stopping",
        "Uploading",
        "MaxRuntimeExceeded",
    ]
    assert "exceeded MaxRuntimeInSeconds" in job["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert server.get("out/long/long/output/model/state") == b"saved\n"


def test_a_spot_job_that_takes_longer_than_it_may_wait_is_stopped(server):
    server.train("waited", UNTIL_SIGTERM, **spot(max_wait_s=1, max_runtime_s=1))
    assert server.ended("waited")["SecondaryStatus"] in (
        "MaxWaitTimeExceeded",
        "MaxRuntimeExceeded",
    )
    server.train("holder", UNTIL_SIGTERM, count=4)
    server.says("holder", "ready")
    server.train("waits", "exit 0", **spot(max_wait_s=1, max_runtime_s=1))
    job = server.ended("waits")
    server.sm.stop_training_job(TrainingJobName="holder")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    assert statuses(job) == ["Starting", "Pending", "Stopping", "MaxWaitTimeExceeded"]
    server.ended("holder")


def test_an_interrupted_spot_job_starts_again_with_its_checkpoints(server):
    script = (
        "cat /opt/ml/checkpoints/n 2>/dev/null; trap 'echo heard; exit 1' TERM;"
        "if [ -e /opt/ml/checkpoints/n ]; then echo again; exit 0; fi;"
        "echo 7 > /opt/ml/checkpoints/n; echo ready; while :; do sleep 0.05; done"
    )
    server.train("spot", script, **spot(), **checkpoints("spot"))
    server.says("spot", "ready")
    assert server.ask("POST", "/raysm/jobs/spot/interrupt") == (200, {"interrupted": "spot"})
    job = server.ended("spot")
    assert job["TrainingJobStatus"] == "Completed", job
    begin = ["Starting", "Downloading", "Training"]
    assert went_through(job) == [*begin, "Interrupted", *begin, "Uploading", "Completed"]
    assert [text for _, text in server.lines("spot")] == ["ready", "heard", "7", "again"]
    assert job["TrainingTimeInSeconds"] >= 1


def test_who_asks_for_the_end_of_a_job_is_answered_when_it_ends(server):
    server.train("heard", UNTIL_SIGTERM)
    server.says("heard", "ready")
    assert server.ask("GET", "/raysm/jobs/us-east-1/heard/end/0") == (200, {"ended": False})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.ask, "GET", "/raysm/jobs/us-east-1/heard/end/60")
        server.sm.stop_training_job(TrainingJobName="heard")
        assert asked.result(SOON_S) == (200, {"ended": True})
    assert (
        server.sm.describe_training_job(TrainingJobName="heard")["TrainingJobStatus"] == "Stopped"
    )
    assert server.ask("GET", "/raysm/jobs/us-east-1/heard/end/60") == (200, {"ended": True})
    assert server.ask("GET", "/raysm/jobs/us-east-1/nobody/end/60")[0] == 409


def test_a_stop_while_it_is_interrupted_ends_it(server):
    script = "trap 'sleep 0.5; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    server.train("both", script, **spot())
    server.says("both", "ready")
    server.ask("POST", "/raysm/jobs/both/interrupt")
    server.sm.stop_training_job(TrainingJobName="both")
    assert server.ended("both")["TrainingJobStatus"] == "Stopped"


def test_ten_jobs_at_once_wait_for_the_cores_and_run_in_their_order(server, tmp_path):
    until_all_are_sent = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    names = [server.train(f"queue-{i}", until_all_are_sent, count=2) for i in range(10)]
    # Two have all four cores.
    until(lambda: server.ask("GET", "/raysm/status")[1]["waiting"] == 8)
    for name in names[2:]:
        server.reached(name, "Pending")
    (tmp_path / "go").touch()
    jobs = [server.ended(name) for name in names]
    assert {job["TrainingJobStatus"] for job in jobs} == {"Completed"}
    starts = [job["TrainingStartTime"] for job in jobs]
    assert all(later > starts[i] for i in range(8) for later in starts[i + 2 :])
    for job in jobs:
        running = [
            other
            for other in jobs
            if other["TrainingStartTime"] <= job["TrainingStartTime"] < other["TrainingEndTime"]
        ]
        assert len(running) <= 2


def test_nothing_of_a_job_that_ended_runs_or_lies_about(server):
    server.train("gone", "sleep 100 & sleep 100 & exit 0")
    server.ended("gone")
    folder = server.home / "jobs" / "training" / "gone"
    until(lambda: not (folder / "work").exists())
    assert sorted(path.name for path in folder.iterdir()) == ["record.json", "streams"]
    assert instances_of(folder) == []
    assert (folder / "record.json").stat().st_mode & 0o077 == 0
