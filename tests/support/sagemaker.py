"""A service for tests of the client: S3, Logs and STS by moto in this process, SageMaker by an obedient fake."""

import contextlib
import datetime
import json

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

from raysm.client.pace import Pace
from raysm.client.places import places_in
from raysm.client.service import Service
from raysm.client.targets import connection_to
from raysm.request import AWS, Local

REGION = "eu-west-1"
ACCOUNT = "123456789012"
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/raysm:cpu"
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
SESSION = boto3.Session(**KEYS)  # one, because each reads the service models anew
QUICK = Pace(first_s=0.001, most_s=0.005)


def aws(**fields):
    return AWS(**({"role": f"arn:aws:iam::{ACCOUNT}:role/jobs", "region": REGION, "image": IMAGE} | fields))


def places_of(target, bucket="b"):
    """Return the prefixes of a target."""
    return places_in(bucket, connection_to(target).data_root)


class FakeSageMaker:
    """Keeps what it was sent; a job is as the test says, and ends when the test says so.

    ``script`` holds, for the jobs in the order of their creation, the changes that the polls of Describe bring.
    """

    def __init__(self):
        self.sent = []
        self.jobs = {}
        self.stopped = []
        self.script = []
        self.described = 0

    def create_training_job(self, **call):
        return {"TrainingJobArn": self._create("TrainingJob", call)}

    def create_processing_job(self, **call):
        return {"ProcessingJobArn": self._create("ProcessingJob", call)}

    def _create(self, kind, call):
        name = call[f"{kind}Name"]
        if name in self.jobs:
            raise refusal("ResourceInUse", f"{name} is there already", f"Create{kind}")
        arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{kind.lower().replace('job', '-job')}/{name}"
        self.sent.append(json.loads(json.dumps(call)))
        job = {key: item for key, item in call.items() if key != "Tags"}
        job |= {f"{kind}Arn": arn, f"{kind}Status": "InProgress", "CreationTime": now()}
        if kind == "TrainingJob":
            job["SecondaryStatus"] = "Starting"
        changes = self.script.pop(0) if self.script else []
        self.jobs[name] = {"kind": kind, "answer": job, "tags": call.get("Tags", []), "arn": arn, "changes": changes}
        return arn

    def describe_training_job(self, *, TrainingJobName):  # noqa: N803
        return self._describe("TrainingJob", TrainingJobName)

    def describe_processing_job(self, *, ProcessingJobName):  # noqa: N803
        return self._describe("ProcessingJob", ProcessingJobName)

    def _describe(self, kind, name):
        self.described += 1
        job = self.jobs.get(name)
        if job is None or job["kind"] != kind:
            raise refusal("ValidationException", "Requested resource not found.", f"Describe{kind}")
        if job["changes"]:
            job["answer"].update(job["changes"].pop(0))
        return dict(job["answer"])

    def stop_training_job(self, *, TrainingJobName):  # noqa: N803
        self.stopped.append(TrainingJobName)
        self.end(TrainingJobName, "Stopped")

    def stop_processing_job(self, *, ProcessingJobName):  # noqa: N803
        self.stopped.append(ProcessingJobName)
        self.end(ProcessingJobName, "Stopped")

    def end(self, name, status, secondary=None, **more):
        kind = self.jobs[name]["kind"]
        end = "TrainingEndTime" if kind == "TrainingJob" else "ProcessingEndTime"
        # Long ago, so that nobody waits for late lines of the log.
        ended = {end: now() - datetime.timedelta(minutes=5), f"{kind}Status": status, **more}
        if kind == "TrainingJob":
            ended["SecondaryStatus"] = secondary or status
        self.jobs[name]["answer"].update(ended)

    def list_tags(self, *, ResourceArn, NextToken=None):  # noqa: N803
        tags = next(job["tags"] for job in self.jobs.values() if job["arn"] == ResourceArn)
        begin = int(NextToken or 0)
        more = {"NextToken": str(begin + 2)} if begin + 2 < len(tags) else {}
        return {"Tags": tags[begin : begin + 2], **more}

    def list_training_jobs(self, **wanted):
        return {"TrainingJobSummaries": self._listed("TrainingJob", wanted)}

    def list_processing_jobs(self, **wanted):
        return {"ProcessingJobSummaries": self._listed("ProcessingJob", wanted)}

    def _listed(self, kind, wanted):
        keys = (f"{kind}Name", f"{kind}Arn", f"{kind}Status", "CreationTime")
        jobs = [job["answer"] for job in self.jobs.values() if job["kind"] == kind]
        named = [job for job in jobs if wanted.get("NameContains", "") in job[f"{kind}Name"]]
        keys += ("SecondaryStatus",) if kind == "TrainingJob" else ()
        return [{key: job[key] for key in keys} for job in reversed(named)][: wanted["MaxResults"]]


def refusal(code, message, operation="Operation"):
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


def now():
    return datetime.datetime.now(datetime.UTC)


class Recording:
    """A boto3 client that remembers the names of what was called, with the keys of objects."""

    def __init__(self, client):
        self._client = client
        self.calls = []

    def __getattr__(self, name):
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args, **kwargs):
            self.calls.append((name, kwargs.get("Key", "")))
            return found(*args, **kwargs)

        return call


class Fake:
    """A service whose SageMaker is the fake; ``s3`` and ``logs`` are moto's."""

    def __init__(self, target, **options):
        self.sagemaker = FakeSageMaker()
        region = REGION if isinstance(target, AWS) else "us-east-1"
        made = {name: SESSION.client(name, region_name=region) for name in ("s3", "logs", "sts", "cloudwatch")}
        self.s3 = Recording(made.pop("s3"))
        self.logs = made["logs"]
        self.clients = {"sagemaker": self.sagemaker, "s3": self.s3, **made}
        self.service = Service(target, clients=self.clients.__getitem__, pace=QUICK, **options)

    def write_log(self, job, host, events, group="/aws/sagemaker/TrainingJobs"):
        """Write ``(time_ms, text)`` into the stream of one instance."""
        stream = f"{job}/{host}-1700000000"
        with contextlib.suppress(ClientError):
            self.logs.create_log_group(logGroupName=group)
        with contextlib.suppress(ClientError):
            self.logs.create_log_stream(logGroupName=group, logStreamName=stream)
        self.logs.put_log_events(
            logGroupName=group,
            logStreamName=stream,
            logEvents=[{"timestamp": time_ms, "message": text} for time_ms, text in events],
        )


@contextlib.contextmanager
def fake_aws(**fields):
    with mock_aws():
        yield Fake(aws(**fields))


@contextlib.contextmanager
def fake_local(home):
    with mock_aws():
        yield Fake(Local(home=str(home)))
