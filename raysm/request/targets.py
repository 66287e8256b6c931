"""Where a job is sent: AWS, or the embedded SageMaker of this machine. One service at two endpoints."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from raysm.errors import InvalidRequest

__all__ = ["AWS", "Local", "Target"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AWS:
    """Amazon SageMaker in one account and region.

    Raises:
        InvalidRequest: The role is no ARN of a role.
    """

    kind: ClassVar[str] = "aws"

    role: str
    """ARN of the role that the job runs as, ``arn:aws:iam::…:role/…``."""
    region: str | None = None
    """None is the region of the AWS configuration."""
    bucket: str | None = None
    """Where payloads and results go; None is the account's ``sagemaker-REGION-ACCOUNT``, as the SDK has it."""
    image: str | None = None
    """URI of the container image: any with Python 3.11 or later; it must be given for now for AWS."""
    profile: str | None = None
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

    instances: int = 1
    """Number of instances where the job names no cluster."""
    instance_kind: Literal["process", "namespace", "docker"] = "process"
    """What plays an instance."""
    home: str | None = None
    """The server's root folder; None is ``$RAYSM_HOME``, else ``~/.raysm``."""
    image: str | None = None
    """Of kind docker: the image."""


Target: TypeAlias = AWS | Local
