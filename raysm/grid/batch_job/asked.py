"""The job of AWS Batch that runs a grid's controller, as the user asks for it. Frozen data."""

import re
from dataclasses import dataclass

from raysm.errors import InvalidRequest

__all__ = ["DEFINITION", "MOST_ATTEMPTS", "ControllerJob"]

DEFINITION = "raysm-grid-controller"
"""Name of the job definition that raysm registers where the user names none."""

MOST_ATTEMPTS = 10
"""Of Batch: https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html"""

NAME = re.compile(r"arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127}")
REVISION = re.compile(r"(arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127})(:\d+)?")
ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/.+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerJob:
    """The job of AWS Batch that runs a grid in the place of this machine.

    Either ``job_definition`` names one that there is, or raysm registers one of ``image`` and ``job_role``.

    Raises:
        InvalidRequest: A name or a role cannot be, roles are given without an image, or a public address without
            Fargate.
    """

    job_queue: str
    """Name or ARN of the job queue: one of EC2 or Fargate, not one of training jobs."""
    job_definition: str | None = None
    """Name, ``NAME:REVISION`` or ARN; None is ``raysm-grid-controller``."""
    image: str | None = None
    """URI of an image with raysm, ``containers/Dockerfile.batch`` for example; None is that of the definition."""
    job_role: str | None = None
    """ARN of the role by which the controller sends jobs; of a definition that raysm registers (``jobRoleArn``)."""
    execution_role: str | None = None
    """ARN of the role by which Fargate brings the image (``executionRoleArn``); None is a queue of EC2."""
    assign_public_ip: bool = False
    """Whether the controller has a public address there (``networkConfiguration``): in a public subnet of Fargate there
    is no other way to the image, nor to SageMaker."""
    attempts: int = MOST_ATTEMPTS
    """Times that Batch starts it, at most: a controller whose host is lost is started again."""

    def __post_init__(self) -> None:
        """Check the fields."""
        # Said here, with the value: Batch would say "ClientException", once the grid was made.
        if not NAME.fullmatch(self.job_queue):
            raise InvalidRequest(f"the job queue of a controller is named by its name or ARN, got {self.job_queue!r}")
        if self.job_definition is not None and not REVISION.fullmatch(self.job_definition):
            raise InvalidRequest(
                f"a job definition is named by its name, NAME:REVISION or ARN, got {self.job_definition!r}"
            )
        for name, role in (("job_role", self.job_role), ("execution_role", self.execution_role)):
            if role is not None and not ROLE.fullmatch(role):
                raise InvalidRequest(f"{name} is the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME, got {role!r}")
            if role is not None and self.image is None:
                raise InvalidRequest(
                    f"{name} is of a definition that raysm registers, which needs an image too; one that there is has "
                    "roles of its own"
                )
        if self.assign_public_ip and self.execution_role is None:
            raise InvalidRequest(
                "assign_public_ip is of a controller on Fargate, and there is no execution_role, by which it brings "
                "the image: give it too; on EC2 the subnet decides"
            )
        # A revision is never changed: of another image there would be another one, and this name would mean the old.
        if self.image is not None and ":" in (self.job_definition or ""):
            raise InvalidRequest(
                f"the image {self.image!r} is of a definition that raysm registers, and {self.job_definition!r} is one "
                "that there is: give a name without a revision, or leave the image out"
            )
        if not 1 <= self.attempts <= MOST_ATTEMPTS:
            raise InvalidRequest(f"attempts of a controller are 1 to {MOST_ATTEMPTS}, got {self.attempts}")

    @property
    def definition(self) -> str:
        """The definition's name."""
        return self.job_definition or DEFINITION
