"""Time limits, spot capacity, networks and keys of a job."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from raysm.core.request.options import (
    check_amounts,
    check_counts,
    check_list,
    check_numbers,
    optional,
)
from raysm.errors import InvalidRequest

MAX_RUNTIME_S = 28 * 24 * 3600
"""CreateTrainingJob takes at most 28 days."""
MIN_STALL_S = 10.0
"""Stacks are read four times before, which takes seconds."""
OnStall = Literal["warn", "fail", "restart"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Time, spot capacity and restarts.

    Raises:
        InvalidRequest: A field is out of its range, or two contradict each other.
    """

    # The result of a job does not depend on its limits, so none is part of the digest of if_done.
    max_runtime_s: int = optional(
        24 * 3600, result=False, create="StoppingCondition.MaxRuntimeInSeconds"
    )
    """Seconds that the job may run; at most 28 days (a Processing job: 9)."""
    spot: bool = optional(
        False,
        result=False,
        create=("EnableManagedSpotTraining", "StoppingCondition.MaxWaitTimeInSeconds"),
        processing_lacks="spot capacity",
    )
    """Run on spot capacity, which can be interrupted at any time."""
    max_wait_s: int | None = optional(
        None,
        result=False,
        create="StoppingCondition.MaxWaitTimeInSeconds",
        processing_lacks="spot capacity to wait for",
    )
    """Seconds to wait for spot capacity and to run, together; at least ``max_runtime_s``; None is
    twice that."""
    retry_attempts: int | None = optional(
        None,
        result=False,
        create="RetryStrategy.MaximumRetryAttempts",
        processing_lacks="a retry strategy",
    )
    """Number of times that the service restarts the job after an InternalServerError, 1 to 30; None
    is never."""
    # Tags count the restarts; see RESTART_TAG in raysm.core.protocol.names.
    max_restarts: int = optional(
        0, result=False, processing_lacks="checkpoints, so nothing to restart from"
    )
    """Number of follow-up jobs that continue from the checkpoint after ``max_runtime_s``; also the
    number of restarts after stalls."""
    stall_s: float = optional(300, result=False)
    """Seconds without a line of output and without work, on any instance, after which the job has
    stalled: the log and ``raysm status`` then say who waits where. At least 10; 0 looks at
    nothing."""
    on_stall: OnStall = optional("warn", result=False)
    """The effect of a stall: ``warn`` says it, ``fail`` also fails the job, ``restart`` starts the
    workload again on the same instances, with its state, up to ``max_restarts`` times."""
    max_cost: float | None = optional(
        None, result=False, create=("StoppingCondition.MaxRuntimeInSeconds", "Environment")
    )
    """USD that the job and its follow-up jobs may cost: the service stops the job before it costs
    more. None is no cap. On this machine, where nothing is billed, it needs ``price_per_hour``."""
    max_cost_per_day: float | None = optional(None, result=False)
    """USD that all jobs which this user sends from this machine may cost on a day (UTC); a job that
    could cost more is not sent. None is no cap."""
    price_per_hour: float | None = optional(None, result=False)
    """USD for an hour of one instance, for costs and caps; None is the price in raysm's table."""

    def __post_init__(self) -> None:
        # A Processing job has a lower limit, which is checked against the service model when the
        # call is made.
        check_counts("Limits", 1, max_runtime_s=self.max_runtime_s)
        check_counts(
            "Limits",
            1,
            or_none=True,
            max_wait_s=self.max_wait_s,
            retry_attempts=self.retry_attempts,
        )
        check_counts("Limits", 0, max_restarts=self.max_restarts)
        check_amounts(
            "Limits",
            max_cost=self.max_cost,
            max_cost_per_day=self.max_cost_per_day,
            price_per_hour=self.price_per_hour,
        )
        self._check_stall()
        if self.max_runtime_s > MAX_RUNTIME_S:
            raise InvalidRequest(
                f"Limits: max_runtime_s must be 1 to {MAX_RUNTIME_S} (28 days), "
                f"got {self.max_runtime_s}"
            )
        if self.max_wait_s is not None and not self.spot:
            raise InvalidRequest("Limits: max_wait_s belongs to spot=True")
        if self.max_wait_s is not None and self.max_wait_s < self.max_runtime_s:
            raise InvalidRequest(
                f"Limits: max_wait_s={self.max_wait_s} must be at least "
                f"max_runtime_s={self.max_runtime_s}, by default a day"
            )
        if self.retry_attempts is not None and self.retry_attempts > 30:
            raise InvalidRequest(
                f"Limits: retry_attempts must be 1 to 30, got {self.retry_attempts}"
            )

    def _check_stall(self) -> None:
        check_numbers("Limits", stall_s=self.stall_s)
        # "not x >= y" also refuses NaN.
        if self.stall_s != 0 and not self.stall_s >= MIN_STALL_S:
            raise InvalidRequest(
                f"Limits: stall_s must be 0 (never) or at least {MIN_STALL_S:g}, got {self.stall_s}"
            )
        if self.on_stall not in get_args(OnStall):
            raise InvalidRequest(
                f"Limits: on_stall is 'warn', 'fail' or 'restart', got {self.on_stall!r}"
            )
        if self.on_stall != "warn" and self.stall_s == 0:
            raise InvalidRequest(
                f"Limits: on_stall={self.on_stall!r} needs stall_s, after how many seconds"
            )
        if self.on_stall == "restart" and self.max_restarts == 0:
            raise InvalidRequest(
                "Limits: on_stall='restart' needs max_restarts (--max-restarts), how often at most"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """Networks, keys and isolation.

    Raises:
        InvalidRequest: Subnets without security groups, or the reverse.
    """

    subnets: tuple[str, ...] = optional((), result=False, create="VpcConfig.Subnets")
    """Subnets of the VPC that the instances join."""
    security_groups: tuple[str, ...] = optional(
        (), result=False, create="VpcConfig.SecurityGroupIds"
    )
    """Security groups of the VPC; they must let the instances reach each other at the ports of
    ``raysm.Ports``."""
    volume_kms_key: str | None = optional(
        None, result=False, create="ResourceConfig.VolumeKmsKeyId"
    )
    """KMS key that encrypts the instances' volumes."""
    output_kms_key: str | None = optional(None, result=False, create="OutputDataConfig.KmsKeyId")
    """KMS key that encrypts the job's output, its payload and uploaded inputs in S3. Checkpoints
    have the bucket's."""
    encrypt_traffic: bool = optional(
        False, result=False, create="EnableInterContainerTrafficEncryption"
    )
    """Encrypt the traffic between instances, which makes it slower."""
    isolation: bool = optional(False, result=False, create="EnableNetworkIsolation")
    """Allow no network except between the instances; pip then cannot install requirements from an
    index."""
    # A user who may start an SSM session gets a root shell with the role's credentials, so some
    # accounts allow CreateTrainingJob only without it:
    # docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
    remote_debug: bool = optional(
        False,
        result=False,
        create="RemoteDebugConfig.EnableRemoteDebug",
        processing_lacks="remote debugging",
    )
    """True opens a shell and the dashboard through SSM to every user who may start SSM sessions;
    the role then needs ``ssmmessages``. ``raysm debug JOB`` switches it while the job runs."""

    def __post_init__(self) -> None:
        for name in ("subnets", "security_groups"):
            object.__setattr__(self, name, check_list("Security", name, getattr(self, name)))
        if bool(self.subnets) != bool(self.security_groups):
            raise InvalidRequest(
                "Security: subnets and security_groups go together; give both or neither"
            )
        if self.remote_debug and self.isolation:
            raise InvalidRequest("Security: remote_debug needs a network; drop it or isolation")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric that the service finds in the log.

    Raises:
        InvalidRequest: The name is empty or too long, or the expression is not a regular
            expression.
    """

    name: str
    """1 to 255 characters."""
    regex: str
    """Its first group is the number; 1 to 500 characters."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 255:
            raise InvalidRequest(
                f"MetricDefinition: a name has 1 to 255 characters, got {self.name!r}"
            )
        if not 1 <= len(self.regex) <= 500:
            raise InvalidRequest(
                f"metric {self.name!r}: a regex has 1 to 500 characters, got {len(self.regex)}"
            )
        try:
            re.compile(self.regex)
        except re.error as error:
            raise InvalidRequest(
                f"metric {self.name!r}: {self.regex!r} is not a regular expression: {error}"
            ) from None
