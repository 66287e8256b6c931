"""A server of the embedded SageMaker in a folder of its own, and boto3's clients of it."""

import contextlib
import functools
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import boto3
from botocore.config import Config

from raysm.core.protocol.home import ServerRecord
from tests.support.leftovers import assert_nothing_left
from tests.support.waiting import until

SOON_S = 180.0
WHOLE_RUN_S = 7200
"""Longer than all tests take: in random order a server that files share is left alone for half of
them."""
ROLE = "arn:aws:iam::123456789012:role/test"
BUCKET = "test-bucket"
TRAINING_LOGS = "/aws/sagemaker/TrainingJobs"


class Server:
    """A running server."""

    def __init__(self, home: Path, *arguments):
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        with (home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "raysm.local.server", "--home", str(home), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: self.process.poll() is not None or self._record() is not None)
        self.record = self._record()
        assert self.record is not None, self.log()

    def _record(self):
        record = ServerRecord.read(self.home)
        return record if record is not None and record.pid == self.process.pid else None

    def log(self):
        return (self.home / "server.log").read_text()

    def client(self, service):
        return self.client_in(service, "us-east-1")

    @functools.cache  # noqa: B019
    def client_in(self, service, region):
        return boto3.client(
            service,
            endpoint_url=self.record.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name=region,
            config=Config(
                retries={"total_max_attempts": 1}, proxies={}, s3={"addressing_style": "path"}
            ),
        )

    @property
    def sm(self):
        return self.client("sagemaker")

    @property
    def s3(self):
        return self.client("s3")

    def ask(self, method, path, headers=None):
        """Call one of the server's own operations; return status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.record.port, timeout=120)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def make_bucket(self):
        self.s3.create_bucket(Bucket=BUCKET)

    def put(self, key, body=b""):
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    def get(self, key):
        return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def keys(self, prefix):
        listed = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"].removeprefix(prefix) for item in listed.get("Contents", [])]

    def train(self, name, script, **fields):
        """Create a training job whose instances run a line of shell."""
        self.sm.create_training_job(**training_request(name, script, **fields))
        return name

    def describe(self, name):
        return self.sm.describe_training_job(TrainingJobName=name)

    def ended(self, name, timeout_s=SOON_S):
        """Wait for a training job's end; return its description."""
        final, deadline_s = ("Completed", "Failed", "Stopped"), time.monotonic() + timeout_s
        # The server says when: to ask again and again for the description takes a third of a core.
        while self.ask("GET", f"/raysm/jobs/us-east-1/{name}/end/10")[1].get("ended") is False:
            assert time.monotonic() < deadline_s, f"{name} does not end within {timeout_s} s"
        # It says nothing of a job that an earlier server ran, or of a name that several jobs have.
        until(lambda: self.describe(name)["TrainingJobStatus"] in final, timeout_s)
        return self.describe(name)

    def reached(self, name, secondary):
        until(lambda: self.describe(name)["SecondaryStatus"] == secondary)

    def lines(self, name, group=TRAINING_LOGS):
        """Return all lines of a job, each with its host."""
        pages = (
            self.client("logs")
            .get_paginator("filter_log_events")
            .paginate(logGroupName=group, logStreamNamePrefix=f"{name}/")
        )
        events = [event for page in pages for event in page["events"]]
        return [
            (event["logStreamName"].split("/")[1].rpartition("-")[0], event["message"])
            for event in events
        ]

    def says(self, name, line):
        """Wait for a line of a job's log."""
        changes = 0

        def is_said():
            nonlocal changes
            if line in [text for _, text in self.lines(name)]:
                return True
            # Until there is another line; some come to the log later than they are written.
            path = f"/raysm/jobs/us-east-1/{name}/change/{changes}/1"
            changes = self.ask("GET", path)[1].get("changes") or changes
            return False

        until(is_said)

    def end(self):
        """End it in the way of a person, and wait."""
        if self.process.poll() is None:
            self.ask("POST", "/raysm/shutdown")
        assert self.process.wait(SOON_S) == 0, self.log()

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def serving(home, *, cores=4):
    """Yield a server of process instances with a bucket; nothing is left of it, and no traceback in its log."""
    options = [
        "--instance-kind",
        "process",
        "--cores",
        str(cores),
        "--stop-grace-s",
        "2",
        "--idle-s",
        str(WHOLE_RUN_S),
    ]
    running = Server(home, *options)
    try:
        running.make_bucket()
        yield running
        running.end()
        assert "Traceback" not in running.log()
    finally:
        running.kill()
    assert_nothing_left(home, running.process.pid)


def training_request(name, script, *, count=1, **fields):
    """Return a request whose instances run a line of shell."""
    algorithm = {
        "TrainingImage": "test:latest",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["sh", "-c", script],
        **fields.pop("algorithm", {}),
    }
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": algorithm,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": count,
            "VolumeSizeInGB": 1,
        },
        # A file of tests may share a job: on a slow machine it outlived 100 s of it.
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        **fields,
    }


def channel(name, uri, distribution="FullyReplicated", **fields):
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": distribution}
    source |= fields.pop("source", {})
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **fields}


def spot(max_wait_s=100, max_runtime_s=100):
    return {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {
            "MaxRuntimeInSeconds": max_runtime_s,
            "MaxWaitTimeInSeconds": max_wait_s,
        },
    }


def statuses(described):
    return [item["Status"] for item in described["SecondaryStatusTransitions"]]


def port_of(server, job, host="algo-1"):
    """Wait until an instance that runs ``tests.support.echo`` listens; return its port."""
    said = []

    def has_said():
        said[:] = [
            text
            for one, text in server.lines(job)
            if one == host and text.startswith("listening on ")
        ]
        return bool(said)

    until(lambda: has_said() or server.describe(job)["TrainingJobStatus"] != "InProgress")
    return int(said[0].split()[-1])


def instances_of(home: Path):
    """Return the processes whose working directory lies below ``home``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(folder / "cwd")).is_relative_to(home):
                found.append(int(folder.name))
    return found
