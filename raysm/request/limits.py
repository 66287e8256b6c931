"""Time limits, spot capacity, networks and keys of a job."""

import re
from dataclasses import dataclass, field

from raysm.errors import InvalidRequest
from raysm.request.options import decides

MAX_RUNTIME_S = 28 * 24 * 3600
"""CreateTrainingJob takes at most 28 days."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Time, spot capacity and restarts.

    Raises:
        InvalidRequest: A field is out of its range, or they contradict each other.
    """

    # Cost and patience make no other result: nothing of Limits has a part in the digest of if_done.
    max_runtime_s: int = field(
        default=24 * 3600, metadata=decides(result=False, create="StoppingCondition.MaxRuntimeInSeconds")
    )
    """Seconds that the job may run; at most 28 days (a Processing job: 9)."""
    spot: bool = field(
        default=False,
        metadata=decides(
            result=False,
            create=("EnableManagedSpotTraining", "StoppingCondition.MaxWaitTimeInSeconds"),
            processing_lacks="spot capacity",
        ),
    )
    """Run on spot capacity, which can be interrupted at any time."""
    max_wait_s: int | None = field(
        default=None,
        metadata=decides(
            result=False, create="StoppingCondition.MaxWaitTimeInSeconds", processing_lacks="spot capacity to wait for"
        ),
    )
    """Seconds to wait for spot capacity and to run, together; at least ``max_runtime_s``; None is twice that."""
    retry_attempts: int | None = field(
        default=None,
        metadata=decides(
            result=False, create="RetryStrategy.MaximumRetryAttempts", processing_lacks="a retry strategy"
        ),
    )
    """Number of times that the service restarts the job after an InternalServerError, 1 to 30; None is never."""
    # raysm's own tag tells a follow-up how many more there may be; see raysm.client.tags.
    max_restarts: int = field(
        default=0, metadata=decides(result=False, processing_lacks="checkpoints, so nothing to restart from")
    )
    """Number of follow-up jobs that continue from the checkpoint after ``max_runtime_s``."""

    def __post_init__(self) -> None:
        # A Processing job may have less, which the service model says where the call is made.
        if not 1 <= self.max_runtime_s <= MAX_RUNTIME_S:
            raise InvalidRequest(
                f"Limits: max_runtime_s must be 1 to {MAX_RUNTIME_S} (28 days), got {self.max_runtime_s}"
            )
        if self.max_wait_s is not None and not self.spot:
            raise InvalidRequest("Limits: max_wait_s belongs to spot=True")
        if self.max_wait_s is not None and self.max_wait_s < self.max_runtime_s:
            raise InvalidRequest(
                f"Limits: max_wait_s={self.max_wait_s} must be at least max_runtime_s={self.max_runtime_s}"
            )
        if self.retry_attempts is not None and not 1 <= self.retry_attempts <= 30:
            raise InvalidRequest(f"Limits: retry_attempts must be 1 to 30, got {self.retry_attempts}")
        if self.max_restarts < 0:
            raise InvalidRequest(f"Limits: max_restarts must not be negative, got {self.max_restarts}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """Networks, keys and isolation.

    Raises:
        InvalidRequest: Subnets without security groups, or the reverse.
    """

    subnets: tuple[str, ...] = field(default=(), metadata=decides(result=False, create="VpcConfig.Subnets"))
    """Subnets of the VPC that the instances join."""
    security_groups: tuple[str, ...] = field(
        default=(), metadata=decides(result=False, create="VpcConfig.SecurityGroupIds")
    )
    """Security groups of the VPC; they must let the instances reach each other on raysm.Ports."""
    volume_kms_key: str | None = field(
        default=None, metadata=decides(result=False, create="ResourceConfig.VolumeKmsKeyId")
    )
    """Encrypts the instances' volumes."""
    output_kms_key: str | None = field(default=None, metadata=decides(result=False, create="OutputDataConfig.KmsKeyId"))
    """Encrypts what the job leaves in S3."""
    encrypt_traffic: bool = field(
        default=False, metadata=decides(result=False, create="EnableInterContainerTrafficEncryption")
    )
    """Encrypts what the instances send each other; slower."""
    isolation: bool = field(
        default=False,
        metadata=decides(result=False, create="EnableNetworkIsolation"),
    )
    """No network but between the instances; then no requirements can be installed from an index."""
    # Whoever may start a session gets a root shell with the role's credentials, and accounts that guard it allow
    # CreateTrainingJob only without: docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
    remote_debug: bool = field(
        default=False,
        metadata=decides(
            result=False, create="RemoteDebugConfig.EnableRemoteDebug", processing_lacks="remote debugging"
        ),
    )
    """Whether a shell and the dashboard can be reached through SSM, by whoever may start a session; the role then needs
    ``ssmmessages``. ``raysm debug JOB`` switches it while the job runs."""

    def __post_init__(self) -> None:
        for name in ("subnets", "security_groups"):
            # A list alone: of a text, tuple() would make its letters, where the codec refuses it by its name.
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if bool(self.subnets) != bool(self.security_groups):
            raise InvalidRequest("Security: subnets and security_groups go together; give both or neither")
        if self.remote_debug and self.isolation:
            raise InvalidRequest("Security: remote_debug needs a network; drop it or isolation")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric that the service finds in the log.

    Raises:
        InvalidRequest: The name is empty or too long, or the expression is not a regular expression.
    """

    name: str
    """1 to 255 characters."""
    regex: str
    """Its first group is the number; 1 to 500 characters."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 255:
            raise InvalidRequest(f"MetricDefinition: a name has 1 to 255 characters, got {self.name!r}")
        if not 1 <= len(self.regex) <= 500:
            raise InvalidRequest(f"metric {self.name!r}: a regex has 1 to 500 characters, got {len(self.regex)}")
        try:
            re.compile(self.regex)
        except re.error as error:
            raise InvalidRequest(f"metric {self.name!r}: {self.regex!r} is not a regular expression: {error}") from None
