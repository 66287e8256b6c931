"""The targets of a job: AWS, or the embedded SageMaker of this machine.

A target decides itself what a request becomes there. What needs a network or a file is asked of its connection in
``raysm.client``. The kinds of instances that the embedded SageMaker can play are here too, because the client names
them; ``raysm.local.instances`` has the class of each.
"""

import re
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias
from urllib.parse import quote

from raysm.errors import InvalidRequest, option
from raysm.request.cluster import LOCAL_TYPE, Cluster
from raysm.request.options import decides


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceKind:
    """One kind of instance."""

    name: str
    summary: str
    """The word for it in a list: ``processes``."""
    keeps_any_time: bool = False
    """True if its jobs can follow a clock that runs faster than this machine's."""
    runs_programs: bool = True
    """True if it runs a job's programs; otherwise a job ends as the scenario says, and leaves no file."""
    needs_image: bool = False
    """True if it runs a container image, which a request must name."""

    @property
    def image(self) -> str:
        """The image in CreateTrainingJob if none is needed: the name of the kind."""
        return f"raysm/{self.name}:latest"


INSTANCE_KINDS: dict[str, InstanceKind] = {
    kind.name: kind
    for kind in (
        InstanceKind(
            name="simulated",
            summary="nothing, which ends as the scenario says",
            keeps_any_time=True,
            runs_programs=False,
        ),
        InstanceKind(name="process", summary="processes"),
        InstanceKind(name="namespace", summary="Linux namespaces (root)"),
        InstanceKind(name="docker", summary="containers", needs_image=True),
    )
}
"""Kinds by name, the one most like the service last; ``raysm.local.instances.SITES`` has the class of each."""


def instance_kind(name: str) -> InstanceKind:
    """Return the kind of this name.

    Raises:
        InvalidRequest: No kind has this name.
    """
    if name not in INSTANCE_KINDS:
        raise InvalidRequest(f"{name!r} is not a kind of instance: {', '.join(INSTANCE_KINDS)}")
    return INSTANCE_KINDS[name]


def kind_of_image(image: str) -> InstanceKind | None:
    """Return the kind that an image names, ``raysm/process:latest``; None of any other image."""
    # The whole of it: below another registry, or with more behind it, it is the name of a real image.
    named = re.fullmatch(r"raysm/([^:/]+)(:.*)?", image)
    return INSTANCE_KINDS.get(named[1]) if named else None


LOCAL_ROLE = "arn:aws:iam::123456789012:role/raysm-local"
"""The API requires a role; on this machine it is not used."""

PYTHON = re.compile(r"3\.\d{1,2}")
"""A version as pickles name it: their bytecode is the same for all that follows the second number."""

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
"""A name as it stands in the signature of a request, by which the server tells the regions apart."""

LOCAL_INSTANCE_TYPE = "ml.m5.large"
"""The API's instance type for ``instance_type='local'``: it takes only SageMaker's types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AWS:
    """Amazon SageMaker in one account and region.

    Raises:
        InvalidRequest: The role is no ARN of a role, or the Python no version.
    """

    kind: ClassVar[str] = "aws"
    takes_files: ClassVar[bool] = False
    """True if the service reads and writes ``file:///`` URIs; otherwise local data is uploaded."""
    removes_jobs: ClassVar[bool] = False
    """True if a job can be deleted."""
    has_volumes: ClassVar[bool] = True
    """True if an instance has a volume of the requested size."""
    is_billed: ClassVar[bool] = True
    """True if instances cost money; then a job keeps running when the command that follows it ends."""
    names_own_types: ClassVar[bool] = True
    """True if Describe shows the instance types that the user chose."""

    # The result depends on the image and the kind of instance, not on the account or the bucket.
    role: str = field(metadata=decides(result=False, create="RoleArn"))
    """ARN of the role that the job runs as, ``arn:aws:iam::…:role/…``."""
    region: str | None = field(default=None, metadata=decides(result=False))
    """None is the region of the AWS configuration."""
    bucket: str | None = field(
        default=None,
        metadata=decides(
            result=False, create=("InputDataConfig", "OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri")
        ),
    )
    """Bucket of payloads and results; None is the account's ``sagemaker-REGION-ACCOUNT``, as for the SDK."""
    image: str | None = field(
        default=None, metadata=decides(result=True, create="AlgorithmSpecification.TrainingImage")
    )
    """URI of the container image: any with Python 3.11 or later; None is AWS's own PyTorch image of the region, for
    CPUs or GPUs as the instances are."""
    # It tells what the image has, and changes nothing of it.
    python: str | None = field(default=None, metadata=decides(result=False))
    """Version of the image's Python, ``3.12``: a function that another one pickles is then refused before it is sent.
    None where AWS's own image says it, or nothing is pickled."""
    profile: str | None = field(default=None, metadata=decides(result=False))
    """Profile of the AWS configuration; None is the default."""

    def __post_init__(self) -> None:
        # China and GovCloud begin with arn:aws, too: arn:aws-cn, arn:aws-us-gov.
        if not (self.role.startswith("arn:aws") and ":role/" in self.role):
            raise InvalidRequest(
                f"AWS: role must be the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME, got {self.role!r}"
            )
        if self.python is not None and not PYTHON.fullmatch(self.python):
            raise InvalidRequest(f"AWS: python is the version of the image's Python, '3.12', got {self.python!r}")

    def job_role(self) -> str:
        """Return the role for the API."""
        return self.role

    def job_image(self) -> str:
        """Return the image that the API is told.

        Raises:
            InvalidRequest: None was given, and none was chosen: that takes the region, which a target may leave open.
        """
        if self.image is None:
            raise InvalidRequest(
                "AWS(image=…) is missing in a plan that is made by itself: raysm.submit and raysm run take AWS's own "
                "image of the region; give the URI of one with Python 3.11 or later in Amazon ECR"
            )
        return self.image

    def instance_kind_told(self) -> str | None:
        """Return None: nothing plays the instances here."""
        return None

    def instance_type(self, chosen: str) -> str:
        """Return the instance type that the API is told.

        Raises:
            InvalidRequest: It is this machine's.
        """
        if chosen == LOCAL_TYPE:
            raise InvalidRequest(
                "Cluster(instance_type='local') is this machine; name one of SageMaker's for AWS, as in "
                "Cluster('ml.m5.xlarge', count=2)"
            )
        return chosen

    def in_region(self, region: str) -> "AWS":
        """Return the same account's target in a region."""
        return replace(self, region=region)

    def reaching(self, regions: tuple[str, ...]) -> "AWS":
        """Return the target by which each of some regions can be asked: the same, any region can."""
        return self

    def within(self, region: str) -> "AWS":
        """Return the target as a program in the account reaches it, whose own region is ``region``.

        By the role that the program has: a profile is of the machine on which it was chosen.
        """
        return replace(self, region=region, profile=None)

    def default_cluster(self) -> Cluster:
        """Refuse: instances that cost money must be chosen.

        Raises:
            InvalidRequest: Always.
        """
        raise InvalidRequest("AWS needs a cluster: cluster=Cluster('ml.m5.xlarge', count=2), or instance groups")

    def describe(self) -> str:
        """Return where it is, for people: ``in eu-west-1``."""
        return f"in {self.region}" if self.region else "on AWS"

    def way_to_dashboard(self, job: str) -> str:
        """Return how Ray's dashboard is reached, for people: its address is one of the job's own network."""
        return f"raysm dashboard {job} shows it, through SSM, where the account lets you into a job"

    def console_link(self, arn: str, page: str, job: str) -> str:
        """Return the address of a job in the console; empty where its ARN tells no region."""
        # From the ARN: region=None leaves the choice to the AWS configuration.
        region = quote(arn.split(":")[3]) if arn.count(":") >= 5 else ""
        if not region:
            return ""
        return f"https://{region}.console.aws.amazon.com/sagemaker/home?region={region}#/{page}/{quote(job)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """The embedded SageMaker: a server on this machine, started on demand.

    Raises:
        InvalidRequest: There is no such kind of instance.
    """

    kind: ClassVar[str] = "local"
    takes_files: ClassVar[bool] = True
    removes_jobs: ClassVar[bool] = True
    has_volumes: ClassVar[bool] = False
    is_billed: ClassVar[bool] = False
    names_own_types: ClassVar[bool] = False

    # Only the default of a cluster: its count is what the result depends on.
    instances: int = field(default=1, metadata=decides(result=False))
    """Number of instances where the job names no cluster."""
    instance_kind: str = field(
        default="process", metadata=decides(result=True, create=("AlgorithmSpecification.TrainingImage", "Tags"))
    )
    """The kind of instance: ``process``, ``namespace`` or ``docker``."""
    regions: tuple[str, ...] = field(default=("us-east-1",), metadata=decides(result=False))
    """Regions that it emulates, each with its own jobs: a job goes to the first, a grid's to any."""
    home: str | None = field(
        default=None,
        metadata=decides(result=False, create=("OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri")),
    )
    """The server's root folder; None is ``$RAYSM_HOME``, else ``~/.raysm``."""
    image: str | None = field(
        default=None, metadata=decides(result=True, create="AlgorithmSpecification.TrainingImage")
    )
    """The image of instances of the kind docker."""

    def __post_init__(self) -> None:
        if not self.regions or any(not REGION.fullmatch(region) for region in self.regions):
            raise InvalidRequest(
                f"Local: regions are one or more names of regions, ('us-east-1', 'eu-west-1'), got {self.regions!r}"
            )
        # For its refusal alone: the kind is looked up again wherever it is asked.
        instance_kind(self.instance_kind)

    def job_role(self) -> str:
        """Return the role for the API."""
        return LOCAL_ROLE

    def job_image(self) -> str:
        """Return the image that the API is told.

        Raises:
            InvalidRequest: The kind of instance runs one, and none was given.
        """
        kind = instance_kind(self.instance_kind)
        if not kind.needs_image:
            return kind.image
        if self.image is None:
            raise InvalidRequest(f"instances of the kind {kind.name} need the image that plays one: {option('image')}")
        return self.image

    def instance_kind_told(self) -> str | None:
        """Return the kind that a tag of the job names; None where its image says it."""
        # The images of other kinds are names of the kind.
        return self.instance_kind if instance_kind(self.instance_kind).needs_image else None

    def instance_type(self, chosen: str) -> str:
        """Return the instance type for the API."""
        # A tag says that this is the default, and not the user's choice.
        return LOCAL_INSTANCE_TYPE if chosen == LOCAL_TYPE else chosen

    def in_region(self, region: str) -> "Local":
        """Return the same server's target in one of its regions.

        Raises:
            InvalidRequest: The server does not play that region.
        """
        if region not in self.regions:
            raise InvalidRequest(
                f"Local(regions={self.regions!r}) has no region {region!r}; name it among them, or send the job to one "
                "that is"
            )
        return replace(self, regions=(region,))

    def reaching(self, regions: tuple[str, ...]) -> "Local":
        """Return the target by which each of some regions can be asked: it plays those that it is told of."""
        return replace(self, regions=regions)

    def within(self, region: str) -> "Local":
        """Return the target as a program of this very server reaches it, whose own region is ``region``.

        The server tells its programs its home, by the variable of that.
        """
        return replace(self, regions=tuple(dict.fromkeys((region, *self.regions))), home=None)

    def default_cluster(self) -> Cluster:
        """Return the cluster of a job that names none."""
        return Cluster(count=self.instances)

    def describe(self) -> str:
        """Return where it is, for people: ``on this machine``."""
        return f"on this machine (home {self.home})" if self.home else "on this machine"

    def way_to_dashboard(self, job: str) -> str:
        """Return how Ray's dashboard is looked at, for people."""
        return f"raysm dashboard {job} shows it"

    def console_link(self, arn: str, page: str, job: str) -> str:
        """Return nothing: it has no console."""
        return ""


Target: TypeAlias = AWS | Local
