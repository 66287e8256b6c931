"""The targets of a job: AWS, or the embedded SageMaker of this machine.

A target contains the rules for turning a request into an API call. Code that needs a network or a
file is in the target's connection, in ``raysm.core.client``. The kinds of instances that the
embedded SageMaker can emulate are here too, because the client names them;
``raysm.local.instances`` has the class of each.
"""

import re
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias
from urllib.parse import quote

from raysm.core.request.cluster import LOCAL_TYPE, Cluster
from raysm.core.request.options import check_counts, check_list, decides, optional
from raysm.errors import InvalidRequest, option


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceKind:
    """One kind of instance."""

    name: str
    summary: str
    """The text in a list of kinds: ``processes``."""
    keeps_any_time: bool = False
    """True if its jobs can follow a clock that runs faster than this machine's."""
    runs_programs: bool = True
    """True if it runs a job's programs; otherwise a job ends as the scenario says, and leaves no
    files."""
    needs_image: bool = False
    """True if it runs a container image, which a request must name."""

    @property
    def image(self) -> str:
        return f"raysm/{self.name}:latest"


INSTANCE_KINDS: dict[str, InstanceKind] = {
    kind.name: kind
    for kind in (
        InstanceKind(
            name="simulated",
            summary="nothing runs, and the job ends as a scenario says",
            keeps_any_time=True,
            runs_programs=False,
        ),
        InstanceKind(name="process", summary="processes"),
        InstanceKind(name="namespace", summary="Linux namespaces (root)"),
        InstanceKind(name="docker", summary="containers", needs_image=True),
    )
}
"""Kinds by name, the one most like the service last; ``raysm.local.instances.SITES`` has the class
of each."""


def instance_kind(name: str) -> InstanceKind:
    if name not in INSTANCE_KINDS:
        raise InvalidRequest(f"{name!r} is not a kind of instance: {', '.join(INSTANCE_KINDS)}")
    return INSTANCE_KINDS[name]


def kind_of_image(image: str) -> InstanceKind | None:
    """Return the kind that an image like ``raysm/process:latest`` names; None for a real image."""
    # fullmatch: with a registry before it or a further path after it, this is the name of a real
    # image.
    named = re.fullmatch(r"raysm/([^:/]+)(:.*)?", image)
    return INSTANCE_KINDS.get(named[1]) if named else None


LOCAL_ROLE = "arn:aws:iam::123456789012:role/raysm-local"
"""The API requires a role; on this machine it is not used."""
BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
"""Also the names of buckets of before 2018, which may have capitals and underscores."""
PYTHON = re.compile(r"3\.\d{1,2}")
REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
LOCAL_INSTANCE_TYPE = "ml.m5.large"
"""The instance type in the API call for ``instance_type='local'``, because the API accepts only
SageMaker's types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AWS:
    """Amazon SageMaker in one account and region.

    Raises:
        InvalidRequest: The role is not the ARN of a role, the bucket not a name, or ``python`` not
            a version.
    """

    kind: ClassVar[str] = "aws"
    takes_files: ClassVar[bool] = False
    """True if the service reads and writes ``file:///`` URIs; otherwise local data is uploaded."""
    removes_jobs: ClassVar[bool] = False
    """True if a job can be deleted."""
    has_volumes: ClassVar[bool] = True
    """True if an instance has a volume of the requested size."""
    is_billed: ClassVar[bool] = True
    """True if instances cost money; then a job keeps running when the command that follows it
    ends."""
    mounts_in_network: ClassVar[bool] = True
    """True if instances reach a file system through a VPC only."""
    names_own_types: ClassVar[bool] = True
    """True if Describe shows the instance types that the user chose."""

    # The result depends on the image and the kind of instance, not on the account or the bucket.
    role: str = field(metadata=decides(result=False, create="RoleArn"))
    """ARN of the role that the job runs as, ``arn:aws:iam::…:role/…``."""
    region: str | None = optional(None, result=False)
    """None is the region of the AWS configuration."""
    bucket: str | None = optional(
        None,
        result=False,
        create=("InputDataConfig", "OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri"),
    )
    """Bucket of payloads and results; None is the account's ``sagemaker-REGION-ACCOUNT``, as for
    the SDK."""
    image: str | None = optional(None, result=True, create="AlgorithmSpecification.TrainingImage")
    """URI of the container image: any with Python 3.11 or later; None is AWS's own PyTorch image of
    the region, for CPUs or GPUs as the instances are."""
    # It describes the image, which decides the result itself.
    python: str | None = optional(None, result=False)
    """Version of the image's Python, ``3.12``, so that a function pickled by another version is
    refused before it is sent. Not needed with AWS's own image, or if nothing is pickled."""
    profile: str | None = optional(None, result=False)
    """Profile of the AWS configuration; None is the default."""

    def __post_init__(self) -> None:
        # The prefix also matches China and GovCloud: arn:aws-cn, arn:aws-us-gov.
        if not (self.role.startswith("arn:aws") and ":role/" in self.role):
            raise InvalidRequest(
                "AWS: role must be the ARN of a role, "
                f"arn:aws:iam::ACCOUNT:role/NAME, got {self.role!r}"
            )
        if self.bucket is not None and not BUCKET.fullmatch(self.bucket):
            own = self.bucket.removeprefix("s3://").partition("/")[0]
            hint = f"; leave out s3:// and the path: {own!r}" if BUCKET.fullmatch(own) else ""
            raise InvalidRequest(
                f"AWS: bucket must be the name of a bucket, got {self.bucket!r}{hint}"
            )
        if self.python is not None and not PYTHON.fullmatch(self.python):
            raise InvalidRequest(
                f"AWS: python is the version of the image's Python, '3.12', got {self.python!r}"
            )

    def job_role(self) -> str:
        return self.role

    def job_image(self) -> str:
        """Return the image for the API; AWS's own is chosen by the client, before the plan."""
        if self.image is None:
            raise InvalidRequest(
                "AWS(image=…) is missing: only raysm.submit and raysm run choose AWS's own image "
                "of the region; give the URI of one with Python 3.11 or later in Amazon ECR"
            )
        return self.image

    def instance_kind_told(self) -> str | None:
        """Return the kind of instance for a tag of the job, or None.

        None means that there are no kinds, or that the image names it.
        """
        return None

    def instance_type(self, chosen: str) -> str:
        """Return the instance type for the API."""
        if chosen == LOCAL_TYPE:
            raise InvalidRequest(
                "Cluster(instance_type='local') is this machine; "
                "for AWS give Cluster('ml.m5.xlarge', count=2)"
            )
        return chosen

    def in_region(self, region: str) -> "AWS":
        """Return the same target in one region."""
        return replace(self, region=region)

    def reaching(self, regions: tuple[str, ...]) -> "AWS":
        """Return a target that reaches all of ``regions``."""
        return self

    def within(self, region: str) -> "AWS":
        """Return the target for a program in ``region`` that runs in the account or the server."""
        # The program uses its own role, because the profile exists only on the user's machine.
        return replace(self, region=region, profile=None)

    def default_cluster(self) -> Cluster:
        # Instances that cost money must be chosen.
        raise InvalidRequest(
            "AWS needs a cluster: cluster=Cluster('ml.m5.xlarge', count=2), or instance groups"
        )

    def describe(self) -> str:
        """Return the location for messages: ``in eu-west-1``."""
        return f"in {self.region}" if self.region else "on AWS"

    def way_to_dashboard(self, job: str) -> str:
        """Return a sentence about how to open Ray's dashboard.

        The dashboard's own address is inside the job's network.
        """
        return (
            "Ray's dashboard of this job: "
            f"raysm dashboard {job}, through SSM, if the account lets you into a job"
        )

    def console_link(self, arn: str, page: str, job: str) -> str:
        """Return the address of a job in the console; empty if the ARN contains no region."""
        # The target's own region may be None, which leaves the choice to the AWS configuration.
        region = quote(arn.split(":")[3]) if arn.count(":") >= 5 else ""
        if not region:
            return ""
        home = f"https://{region}.console.aws.amazon.com/sagemaker/home?region={region}"
        return f"{home}#/{page}/{quote(job)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """The embedded SageMaker: a server on this machine, started on demand.

    Raises:
        InvalidRequest: The kind of instance or a region's name is unknown.
    """

    kind: ClassVar[str] = "local"
    takes_files: ClassVar[bool] = True
    removes_jobs: ClassVar[bool] = True
    has_volumes: ClassVar[bool] = False
    is_billed: ClassVar[bool] = False
    mounts_in_network: ClassVar[bool] = False
    names_own_types: ClassVar[bool] = False

    # Only a default; the result depends on the cluster's count.
    instances: int = optional(1, result=False)
    """Number of instances of a job that names no cluster."""
    instance_kind: str = optional(
        "process", result=True, create=("AlgorithmSpecification.TrainingImage", "Tags")
    )
    """The kind of instance: ``process``, ``namespace`` or ``docker``."""
    regions: tuple[str, ...] = optional(("us-east-1",), result=False)
    """Regions that the server emulates, each with its own jobs; a job goes to the first, a grid's
    jobs to all."""
    home: str | None = optional(
        None, result=False, create=("OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri")
    )
    """The server's root folder; None is ``$RAYSM_HOME``, else ``~/.raysm``."""
    image: str | None = optional(None, result=True, create="AlgorithmSpecification.TrainingImage")
    """The image of instances of the kind docker."""
    cpus: int | None = optional(None, result=False, create="Environment")
    """Number of CPUs that Ray uses in each instance, at least 1, perhaps more than this machine
    has; None is an equal part of this machine's."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", check_list("Local", "regions", self.regions))
        if not self.regions or any(not REGION.fullmatch(region) for region in self.regions):
            raise InvalidRequest(
                "Local: regions are one or more names of regions, ('us-east-1', "
                f"'eu-west-1'), got {self.regions!r}"
            )
        instance_kind(self.instance_kind)  # raises InvalidRequest if the kind is unknown
        check_counts("Local", 1, or_none=True, cpus=self.cpus)

    def job_role(self) -> str:
        return LOCAL_ROLE

    def job_image(self) -> str:
        kind = instance_kind(self.instance_kind)
        if not kind.needs_image:
            return kind.image
        if self.image is None:
            raise InvalidRequest(
                f"instances of the kind {kind.name} run a container image; give {option('image')}"
            )
        return self.image

    def instance_kind_told(self) -> str | None:
        return self.instance_kind if instance_kind(self.instance_kind).needs_image else None

    def instance_type(self, chosen: str) -> str:
        # A tag of the job says whether the user chose this type.
        return LOCAL_INSTANCE_TYPE if chosen == LOCAL_TYPE else chosen

    def in_region(self, region: str) -> "Local":
        if region not in self.regions:
            raise InvalidRequest(
                f"Local(regions={self.regions!r}) has no region {region!r}; "
                "add it, or send the job to another"
            )
        return replace(self, regions=(region,))

    def reaching(self, regions: tuple[str, ...]) -> "Local":
        return replace(self, regions=regions)

    def within(self, region: str) -> "Local":
        # The program finds the home in $RAYSM_HOME, which the server sets.
        return replace(self, regions=tuple(dict.fromkeys((region, *self.regions))), home=None)

    def default_cluster(self) -> Cluster:
        return Cluster(count=self.instances)

    def describe(self) -> str:
        return f"on this machine (home {self.home})" if self.home else "on this machine"

    def way_to_dashboard(self, job: str) -> str:
        return f"Ray's dashboard of this job: raysm dashboard {job}"

    def console_link(self, arn: str, page: str, job: str) -> str:
        return ""


Target: TypeAlias = AWS | Local
