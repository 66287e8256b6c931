"""The whole picture on one machine: an array file of two lines, a Batch array, two clusters in two regions."""

import shlex
import sys

import pytest

from tests.support.batch_queues import LOGS, define, make_queue
from tests.support.sagemaker_server import BUCKET, serving, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

REGIONS = ("us-west-2", "eu-central-1")
TRAIN = """
import os, sys
import ray

ray.init(address="auto")
print("trained on", sorted(os.listdir(os.environ["SM_CHANNEL_DATA"])) if "SM_CHANNEL_DATA" in os.environ else sys.argv,
      "with", len(ray.nodes()), "node")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home"), cores=2) as running:
        make_queue(running.client("batch"))
        yield running


def jobs_of(server, region):
    listed = server.client_in("sagemaker", region).list_training_jobs(
        NameContains="drives-", MaxResults=100
    )
    return listed["TrainingJobSummaries"]


def test_an_array_file_starts_a_cluster_for_each_line_and_a_child_that_is_tried_again_starts_none(
    server, tmp_path
):
    (tmp_path / "train.py").write_text(TRAIN)
    lines = []
    for region in REGIONS:
        server.put(f"{region}/images.txt", b"x")
        lines.append(f"{region},s3://{BUCKET}/{region}/\n")
    (tmp_path / "array.txt").write_text("".join(lines))
    command = shlex.join([
        sys.executable, "-m", "raysm", "grid", "row", "train.py", "--name", "drives", "--rows", "array.txt",
        "--columns", "region,input_data", "--instance-type", "ml.m5.large", "--instance-kind", "process", "--wait",
    ])  # fmt: skip
    # Each child is lost once behind its end: what Batch starts then finds its job, and sends none.
    script = f'cd {tmp_path} && {command} --index "$AWS_BATCH_JOB_ARRAY_INDEX" && test "$AWS_BATCH_JOB_ATTEMPT" = 2'
    batch = server.client("batch")
    array = batch.submit_job(
        jobName="drives",
        jobQueue="programs",
        jobDefinition=define(batch, script),
        arrayProperties={"size": len(REGIONS)},
        retryStrategy={"attempts": 2},
    )["jobId"]

    def described(identifier):
        return batch.describe_jobs(jobs=[identifier])["jobs"][0]

    until(lambda: described(array)["status"] in ("SUCCEEDED", "FAILED"), 800)
    logs = [said(server, described(f"{array}:{index}")) for index in range(len(REGIONS))]
    assert described(array)["status"] == "SUCCEEDED", logs
    for index, log in enumerate(logs):
        assert any("was sent before" in line and REGIONS[index] in line for line in log), log
    for region in REGIONS:
        assert [job["TrainingJobStatus"] for job in jobs_of(server, region)] == ["Completed"], (
            region
        )


def said(server, child):
    """Return the lines of a child's last attempt."""
    stream = child["attempts"][-1]["container"]["logStreamName"]
    events = server.client("logs").get_log_events(logGroupName=LOGS, logStreamName=stream)["events"]
    return [event["message"] for event in events]
