"""The APIs by which SageMaker runs jobs, each as one value, and the structures that both sides read.

SageMaker names all of an API's operations and keys by one rule, so a further API (Transform) is one more value here,
with its call in ``raysm.client`` and its server in ``raysm.local``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from raysm.errors import InvalidInput, InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where the instances of an API find their files: paths below ``/opt/ml``."""

    config: str
    """Folder of the configuration files."""
    description: str | None = None
    """The file in which the whole job stands; None where each part has a file of its own beside it."""
    channels: str
    """Folder of the channels."""
    model: str
    """Folder of the result."""
    output_data: str
    """Folder of what else is kept."""
    failure: str
    """File with the reason of a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobApi:
    """One API that runs jobs."""

    kind: str
    """How a request names it, ``training``; a job's ARN, and its folder on the embedded SageMaker, begin with it."""
    console_page: str
    """The part of the console's address that lists its jobs."""
    cluster_keys: tuple[str, ...]
    """The way to the instances' types and counts, in a request as in Describe's answer."""
    # Each API has a list of its own: what trains need not be there for processing.
    instance_type_shape: str
    """How the service model calls the values of an instance type."""
    layout: Layout
    """Where its instances find their files."""
    reason_keys: tuple[str, ...] = ("FailureReason",)
    """Where Describe says why a job failed, the job's own words first."""
    has_exit_message: bool = False
    """Whether what a job leaves as its message is told also where it did not fail."""
    can_update: bool = False
    """Whether a job that runs can be changed."""
    has_groups: bool = False
    """Whether its instances may be of several types."""
    has_checkpoints: bool = False
    """Whether state survives a job, so that a follow-up or a later run can go on from it."""
    filters_status_late: bool = False
    """Whether List, where a page's size is given, takes the page first and then those of the wanted status: what the
    API's model says of ListTrainingJobs (https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ListTrainingJobs.html)."""
    has_secondary_status: bool = False
    """Whether the service tells what a job that is InProgress does just now."""

    @property
    def title(self) -> str:
        """As names and sentences begin with it, ``Training``."""
        # All names follow from this one word, by a rule that a test holds against botocore's model.
        return self.kind.capitalize()

    @property
    def create(self) -> str:
        """The operation that makes a job."""
        return f"Create{self.title}Job"

    @property
    def describe(self) -> str:
        """The operation that tells how a job is."""
        return f"Describe{self.title}Job"

    @property
    def stop(self) -> str:
        """The operation that ends a job."""
        return f"Stop{self.title}Job"

    @property
    def delete(self) -> str:
        """The operation that removes what the service knows of a job."""
        return f"Delete{self.title}Job"

    @property
    def list(self) -> str:
        """The operation that lists jobs."""
        return f"List{self.title}Jobs"

    @property
    def update(self) -> str | None:
        """The operation that changes a job that runs; None where there is none."""
        return f"Update{self.title}Job" if self.can_update else None

    @property
    def name_key(self) -> str:
        """The key of a job's name, in requests, answers and dimensions of metrics."""
        return f"{self.title}JobName"

    @property
    def arn_key(self) -> str:
        """The key of a job's ARN."""
        return f"{self.title}JobArn"

    @property
    def status_key(self) -> str:
        """The key of a job's status."""
        return f"{self.title}JobStatus"

    @property
    def start_time_key(self) -> str:
        """The key of when a job's instances were started."""
        return f"{self.title}StartTime"

    @property
    def end_time_key(self) -> str:
        """The key of when a job ended."""
        return f"{self.title}EndTime"

    @property
    def summary_shape(self) -> str:
        """How the service model calls one job of a list."""
        return f"{self.title}JobSummary"

    @property
    def summaries_key(self) -> str:
        """The key of the jobs of a list."""
        return f"{self.title}JobSummaries"

    @property
    def arn_part(self) -> str:
        """What stands before a job's name in its ARN."""
        return f"{self.kind}-job"

    @property
    def log_group(self) -> str:
        """The log group of its jobs, which is the namespace of their metrics too."""
        return f"/aws/sagemaker/{self.title}Jobs"

    def arn(self, *, region: str, account: str, name: str) -> str:
        """Return the ARN of the job ``name``."""
        # Of no other partition: only the embedded SageMaker and the fake make ARNs, and AWS tells its own.
        return f"arn:aws:sagemaker:{region}:{account}:{self.arn_part}/{name}"


TRAINING = JobApi(
    kind="training",
    console_page="jobs",
    cluster_keys=("ResourceConfig",),
    instance_type_shape="TrainingInstanceType",
    layout=Layout(
        config="input/config",
        channels="input/data",
        model="model",
        output_data="output/data",
        failure="output/failure",
    ),
    can_update=True,
    has_groups=True,
    has_checkpoints=True,
    has_secondary_status=True,
    filters_status_late=True,
)
"""Training jobs: what raysm sends unless the request says otherwise."""

PROCESSING = JobApi(
    kind="processing",
    console_page="processing-jobs",
    cluster_keys=("ProcessingResources", "ClusterConfig"),
    instance_type_shape="ProcessingInstanceType",
    layout=Layout(
        config="config",
        description="config/processingjobconfig.json",
        # The service has no fixed places for these: the client asks for them by LocalPath.
        channels="processing/input",
        model="processing/output/result",
        output_data="processing/output/data",
        failure="output/message",
    ),
    # The failure file's words arrive as ExitMessage; FailureReason says it in the service's own.
    reason_keys=("ExitMessage", "FailureReason"),
    has_exit_message=True,
)
"""Processing jobs. What else they lack stands at the options of a request."""

# Training first: a name does not tell its API, and each API that is asked in vain costs a call.
APIS = (TRAINING, PROCESSING)
"""All of them, in the order in which a job is looked for by its name alone."""


def api_of(kind: str) -> JobApi:
    """Return the API of a kind, ``training``.

    Raises:
        InvalidRequest: There is none of that kind.
    """
    for api in APIS:
        if api.kind == kind:
            return api
    raise InvalidRequest(f"kind must be {' or '.join(repr(api.kind) for api in APIS)}, got {kind!r}")


Resources: TypeAlias = Mapping[str, Any]
"""What a request, or Describe, has as ResourceConfig."""


def preferred(resources: Resources) -> tuple[tuple[str, int], ...]:
    """Return the types in order, each with its number of instances; empty where there is no choice."""
    return tuple(
        (each["InstanceType"], each.get("InstanceCount") or resources.get("InstanceCount") or 0)
        for each in resources.get("InstancePreferences") or ()
    )


def selected(resources: Resources, instance_type: str, count: int) -> dict[str, Any]:
    """Return what Describe tells once the service has chosen a type."""
    return {**resources, "SelectedInstanceType": instance_type, "SelectedInstanceCount": count}


def settled(resources: Resources) -> Resources:
    """Return the same with one type and its number of instances: that which was chosen, the first of all before."""
    choices = preferred(resources)
    if not choices:
        return resources
    first, count = choices[0]
    return {
        **resources,
        "InstanceType": resources.get("SelectedInstanceType") or first,
        "InstanceCount": resources.get("SelectedInstanceCount") or count,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class InputManifest:
    """Some of the objects below a prefix."""

    prefix: str
    """URI with which all begin."""
    names: Sequence[str]
    """What each has behind it."""

    @classmethod
    def of(cls, content: bytes, uri: str) -> "InputManifest":
        """Return what the file at ``uri`` says.

        Raises:
            InvalidInput: It is no manifest.
        """
        try:
            head, *names = json.loads(content)
            prefix = head["prefix"]
        except (ValueError, TypeError, KeyError):
            prefix, names = None, []
        if not isinstance(prefix, str) or not names or not all(isinstance(name, str) for name in names):
            raise InvalidInput(
                f"{uri} is not a manifest. Write a JSON list with at least one name, "
                '[{"prefix": "s3://bucket/folder/"}, "name", ...], or drop manifest=True if the file is data'
            )
        return cls(prefix=prefix, names=names)

    def content(self) -> bytes:
        """Return the file."""
        return json.dumps([{"prefix": self.prefix}, *self.names]).encode()
