"""Where a job is sent: AWS, or the embedded SageMaker of this machine. One service at two endpoints."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from raysm.errors import InvalidRequest
from raysm.request.options import decides

__all__ = ["AWS", "Local", "Target"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AWS:
    """Amazon SageMaker in one account and region.

    Raises:
        InvalidRequest: The role is no ARN of a role.
    """

    kind: ClassVar[str] = "aws"

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
    """Where payloads and results go; None is the account's ``sagemaker-REGION-ACCOUNT``, as the SDK has it."""
    image: str | None = field(
        default=None, metadata=decides(result=True, create="AlgorithmSpecification.TrainingImage")
    )
    """URI of the container image: any with Python 3.11 or later; it must be given for now for AWS."""
    profile: str | None = field(default=None, metadata=decides(result=False))
    """Profile of the AWS configuration; None is the default."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (self.role.startswith("arn:aws") and ":role/" in self.role):
            raise InvalidRequest(
                f"AWS: role must be the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME, got {self.role!r}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """The embedded SageMaker: a server on this machine, started on demand."""

    kind: ClassVar[str] = "local"

    # Only the default of a cluster: its count is what the result depends on.
    instances: int = field(default=1, metadata=decides(result=False))
    """Number of instances where the job names no cluster."""
    instance_kind: Literal["process", "namespace", "docker"] = field(
        default="process", metadata=decides(result=True, create=("AlgorithmSpecification.TrainingImage", "Tags"))
    )
    """What plays an instance."""
    home: str | None = field(
        default=None,
        metadata=decides(result=False, create=("OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri")),
    )
    """The server's root folder; None is ``$RAYSM_HOME``, else ``~/.raysm``."""
    image: str | None = field(
        default=None, metadata=decides(result=True, create="AlgorithmSpecification.TrainingImage")
    )
    """Of kind docker: the image."""


Target: TypeAlias = AWS | Local
