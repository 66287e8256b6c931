"""A service for tests of the client: S3, Logs and STS by moto in this process, SageMaker by an obedient stand-in."""

import contextlib
import datetime
import functools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import boto3
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from moto import mock_aws

from raysm.core.client.service import Service
from raysm.core.client.storage.places import places_in
from raysm.core.client.targets.connection import Polling, connection_to
from raysm.core.request import AWS, Local
from tests.support.permissions import covered

REGION = "eu-west-1"
ACCOUNT = "123456789012"
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/raysm:cpu"
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
SESSION = boto3.Session(**KEYS)  # one, because each reads the service models anew
QUICK = Polling(first_s=0.001, most_s=0.005)


def aws(**fields):
    return AWS(
        **({"role": f"arn:aws:iam::{ACCOUNT}:role/jobs", "region": REGION, "image": IMAGE} | fields)
    )


def places_of(target, bucket="b"):
    """Return the prefixes of a target."""
    return places_in(bucket, connection_to(target).data_root)


class NoEvents:
    """The events of a client that is none of boto3: nobody is told anything."""

    def register(self, *args, **kwargs):
        pass


class ScriptedSageMaker:
    """boto3's client of SageMaker: keeps what it was sent; a job is as the test says, and ends when the test says so.

    ``script`` holds, for the jobs in the order of their creation, the changes that the polls of
    Describe bring.
    """

    meta = SimpleNamespace(events=NoEvents())

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
        self.jobs[name] = {
            "kind": kind,
            "answer": job,
            "tags": call.get("Tags", []),
            "arn": arn,
            "changes": changes,
        }
        return arn

    def describe_training_job(self, *, TrainingJobName):  # noqa: N803
        return self._describe("TrainingJob", TrainingJobName)

    def describe_processing_job(self, *, ProcessingJobName):  # noqa: N803
        return self._describe("ProcessingJob", ProcessingJobName)

    def describe_hyper_parameter_tuning_job(self, *, HyperParameterTuningJobName):  # noqa: N803
        raise refusal(
            "ResourceNotFound", "Requested resource not found.", "DescribeHyperParameterTuningJob"
        )

    def _describe(self, kind, name):
        self.described += 1
        job = self.jobs.get(name)
        if job is None or job["kind"] != kind:
            raise refusal("ValidationException", "Requested resource not found.", f"Describe{kind}")
        if job["changes"]:
            job["answer"].update(job["changes"].pop(0))
        return dict(job["answer"])

    def delete_training_job(self, *, TrainingJobName):  # noqa: N803
        del self.jobs[TrainingJobName]

    def stop_training_job(self, *, TrainingJobName):  # noqa: N803
        self.stopped.append(TrainingJobName)
        self.end(TrainingJobName, "Stopped")

    def stop_processing_job(self, *, ProcessingJobName):  # noqa: N803
        self.stopped.append(ProcessingJobName)
        self.end(ProcessingJobName, "Stopped")

    def update_training_job(self, *, TrainingJobName, **changes):  # noqa: N803
        self.jobs[TrainingJobName]["answer"].update(changes)
        return {"TrainingJobArn": self.jobs[TrainingJobName]["arn"]}

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
        keys = (
            f"{kind}Name",
            f"{kind}Arn",
            f"{kind}Status",
            "CreationTime",
            f"{kind.removesuffix('Job')}EndTime",
        )
        jobs = [job["answer"] for job in self.jobs.values() if job["kind"] == kind]
        named = [job for job in jobs if wanted.get("NameContains", "") in job[f"{kind}Name"]]
        keys += ("SecondaryStatus",) if kind == "TrainingJob" else ()
        return [{key: job[key] for key in keys if key in job} for job in reversed(named)][
            : wanted["MaxResults"]
        ]


def refusal(code, message, operation="Operation"):
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


def now():
    return datetime.datetime.now(datetime.UTC)


@dataclass
class Failure:
    """What a test wants to go wrong."""

    operation: str
    error: BaseException
    times: int | None
    """How often; None is until it is over."""
    after: int
    """How many calls succeed before."""
    when: Callable[[dict], bool]
    """Which calls it is about, by their keywords."""
    done: bool
    """Whether the service does what it is asked for before it fails: an answer that is lost on its
    way."""
    happened: threading.Event = field(default_factory=threading.Event)

    def strikes(self, name, call):
        """Whether this call is to fail; counts it."""
        if name != self.operation or not self.when(call) or self.times == 0:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times = None if self.times is None else self.times - 1
        self.happened.set()
        return True

    def end(self):
        """Let the calls succeed from now on."""
        self.times = 0


class ScriptedClient:
    """A boto3 client that remembers its calls, with the keys of objects, and fails where the script says so.

    ``stands_for`` is the service for which ``client`` stands, if it is none of boto3: its calls are
    checked.
    """

    def __init__(self, client, failures, stands_for=None):
        self._client = client
        self._failures = failures
        self._stands_for = stands_for
        self.calls = []

    def __getattr__(self, name):
        attribute = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def call(*args, **kwargs):
            self.calls.append((name, kwargs.get("Key", "")))
            if self._stands_for is not None:
                check_call(self._stands_for, name, kwargs)
            failure = next(
                (failure for failure in self._failures if failure.strikes(name, kwargs)), None
            )
            if failure is None:
                return attribute(*args, **kwargs)
            if failure.done:
                attribute(*args, **kwargs)
            raise failure.error

        return call


def operations_of(service, client):
    """Return what was called of a scripted client behind which there is none of boto3."""
    return {f"{service}:{operation_names(service)[name]}" for name, _ in client.calls}


def check_call(service, name, call):
    """Check a call as boto3 itself would; ``name`` is that of boto3's method."""
    shape = service_model(service).operation_model(operation_names(service)[name]).input_shape
    report = ParamValidator().validate(call, shape)
    assert not report.has_errors(), report.generate_report()


@functools.cache
def operation_names(service):
    """Return the operations of a service by the names of boto3's methods."""
    return {xform_name(name): name for name in service_model(service).operation_names}


@functools.cache
def service_model(name):
    """Return botocore's model of a service."""
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


@functools.cache
def _called(region):
    """The operations that the clients of a region called, since they were last given to a test."""
    return set()


@functools.cache
def _client(name, region):
    """Return a client whose ``called`` is what it called; tests share it, since to make one takes longer than most."""
    client = SESSION.client(name, region_name=region)
    client.called = _called(region)
    # botocore's event tells of the parts of large objects too, which boto3 sends by itself.
    client.meta.events.register(
        "provide-client-params",
        lambda model, **_: client.called.add(f"{model.service_model.service_name}:{model.name}"),
    )
    return client


class ScriptedClients:
    """A service of the client half on a scripted set of boto3 clients: SageMaker is ours, the others are moto's."""

    def __init__(self, target, **options):
        self.sagemaker = ScriptedSageMaker()
        self.failures = []
        region = target.region if isinstance(target, AWS) else "us-east-1"
        behind = {
            name: _client(name, region) for name in ("s3", "logs", "sts", "cloudwatch", "ssm")
        }
        self.called = behind["s3"].called
        self.called.clear()
        self.clients = {
            name: ScriptedClient(client, self.failures) for name, client in behind.items()
        }
        self.clients["sagemaker"] = ScriptedClient(
            self.sagemaker, self.failures, stands_for="sagemaker"
        )
        self.s3, self.logs = self.clients["s3"], self.clients["logs"]
        self.service = Service(target, clients=self.clients.__getitem__, polling=QUICK, **options)

    def operations(self):
        """Return every operation that was called, ``s3:PutObject``."""
        return self.called | operations_of("sagemaker", self.clients["sagemaker"])

    def fail(self, operation, error, *, times=None, after=0, when=lambda call: True, done=False):
        """Let calls of an operation raise ``error``; see ``Failure``. The last that was said comes first."""
        assert any(hasattr(client, operation) for client in self.clients.values()), (
            f"no client has {operation}"
        )
        failure = Failure(operation, error, times=times, after=after, when=when, done=done)
        self.failures.insert(0, failure)
        return failure

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
        yield from _checked(ScriptedClients(aws(**fields)))


@contextlib.contextmanager
def fake_local(home):
    with mock_aws():
        yield from _checked(ScriptedClients(Local(home=str(home))))


OF_INSTANCES = {
    "logs:CreateLogGroup",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "cloudwatch:PutMetricData",
}
"""What tests do in place of the instances, by the same clients."""

ON_THIS_MACHINE = {"sagemaker:DeleteTrainingJob"}
"""What is called of the embedded SageMaker alone, which asks for no permission: on AWS no job is
removed."""


def _checked(clients):
    """Yield it; a failure that never happened would be a test that shows nothing, and a call needs a permission."""
    yield clients
    assert all(failure.happened.is_set() for failure in clients.failures)
    lacking = clients.operations() - covered() - OF_INSTANCES - ON_THIS_MACHINE
    assert not lacking, f"add to policies.json what these calls need: {sorted(lacking)}"
