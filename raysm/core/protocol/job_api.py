"""The APIs by which SageMaker runs jobs, each as one value, and structures both sides read.

SageMaker names all of an API's operations and keys by one rule, so a further API (Transform) is one
more value here, with its call in ``raysm.core.client`` and its server in ``raysm.local``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from raysm.errors import InvalidInput, InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where the instances of an API find their files: paths below ``/opt/ml``."""

    config: str
    description: str | None = None
    """The file that describes the whole job; None if each part has a file of its own in
    ``config``."""
    channels: str
    model: str
    output_data: str
    failure: str


@dataclass(frozen=True, kw_only=True)
class JobApi:
    """One API that runs jobs.

    The names of its operations and keys follow from ``kind``; a test compares them with botocore's
    model.
    """

    kind: str
    """How a request names it, ``training``; a job's ARN, and its folder on the embedded SageMaker,
    begin with it."""
    console_page: str
    cluster_keys: tuple[str, ...]
    instance_type_shape: str
    """The service model's name of the enum of instance types, which each API has for itself."""
    layout: Layout
    reason_keys: tuple[str, ...] = ("FailureReason",)
    """Keys of Describe that say why a job failed, the job's own words first."""
    has_exit_message: bool = False
    """True if a job's message is shown also when it did not fail."""
    can_update: bool = False
    has_groups: bool = False
    has_checkpoints: bool = False
    filters_status_late: bool = False
    """True if List with a page size takes the page first and then filters by status, as the API's
    model says of ListTrainingJobs
    (https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ListTrainingJobs.html)."""
    has_secondary_status: bool = False

    def __post_init__(self) -> None:
        title = self.kind.capitalize()
        names = {
            "title": title,
            "create": f"Create{title}Job",
            "describe": f"Describe{title}Job",
            "stop": f"Stop{title}Job",
            "delete": f"Delete{title}Job",
            "list": f"List{title}Jobs",
            "update": f"Update{title}Job" if self.can_update else None,
            "name_key": f"{title}JobName",
            "arn_key": f"{title}JobArn",
            "status_key": f"{title}JobStatus",
            "start_time_key": f"{title}StartTime",
            "end_time_key": f"{title}EndTime",
            "summary_shape": f"{title}JobSummary",
            "summaries_key": f"{title}JobSummaries",
            "arn_part": f"{self.kind}-job",
            "log_group": f"/aws/sagemaker/{title}Jobs",
        }
        for name, value in names.items():
            object.__setattr__(self, name, value)

    title: str = field(init=False)
    create: str = field(init=False)
    describe: str = field(init=False)
    stop: str = field(init=False)
    delete: str = field(init=False)
    list: str = field(init=False)
    update: str | None = field(init=False)
    name_key: str = field(init=False)
    arn_key: str = field(init=False)
    status_key: str = field(init=False)
    start_time_key: str = field(init=False)
    end_time_key: str = field(init=False)
    summary_shape: str = field(init=False)
    """The service model's name of one job of a list."""
    summaries_key: str = field(init=False)
    arn_part: str = field(init=False)
    log_group: str = field(init=False)

    def arn(self, *, region: str, account: str, name: str) -> str:
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

PROCESSING = JobApi(
    kind="processing",
    console_page="processing-jobs",
    cluster_keys=("ProcessingResources", "ClusterConfig"),
    instance_type_shape="ProcessingInstanceType",
    layout=Layout(
        config="config",
        description="config/processingjobconfig.json",
        # The service has no fixed paths for these: the client requests them by LocalPath.
        channels="processing/input",
        model="processing/output/result",
        output_data="processing/output/data",
        failure="output/message",
    ),
    # The content of the failure file arrives as ExitMessage; FailureReason is the service's own
    # text.
    reason_keys=("ExitMessage", "FailureReason"),
    has_exit_message=True,
)

# A job that is known by its name only is looked for in this order.
APIS = (TRAINING, PROCESSING)


def api_of(kind: str) -> JobApi:
    for api in APIS:
        if api.kind == kind:
            return api
    raise InvalidRequest(
        f"kind must be {' or '.join(repr(api.kind) for api in APIS)}, got {kind!r}"
    )


Resources: TypeAlias = Mapping[str, Any]


def preferred(resources: Resources) -> tuple[tuple[str, int], ...]:
    """Return the preferred types in order, with numbers of instances; empty without a choice."""
    return tuple(
        (each["InstanceType"], each.get("InstanceCount") or resources.get("InstanceCount") or 0)
        for each in resources.get("InstancePreferences") or ()
    )


def selected(resources: Resources, instance_type: str, count: int) -> dict[str, Any]:
    return {**resources, "SelectedInstanceType": instance_type, "SelectedInstanceCount": count}


def settled(resources: Resources) -> Resources:
    """Return the same with one type and count.

    It is the service's choice, or the first preference before it has chosen.
    """
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
    prefix: str
    names: Sequence[str]

    @classmethod
    def of(cls, content: bytes, uri: str) -> "InputManifest":
        try:
            head, *names = json.loads(content)
            prefix = head["prefix"]
        except (ValueError, TypeError, KeyError):
            prefix = None
            names = []
        if (
            not isinstance(prefix, str)
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise InvalidInput(
                f"{uri} is not a manifest. Write a JSON list with at least one name, "
                '[{"prefix": "s3://bucket/folder/"}, "name", ...], '
                "or drop manifest=True if the file is data"
            )
        return cls(prefix=prefix, names=names)

    def content(self) -> bytes:
        return json.dumps([{"prefix": self.prefix}, *self.names]).encode()
