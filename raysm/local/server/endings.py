"""The end of a job: its reasons, time limits, the words of AWS, and when a stop or interruption is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from raysm.contract.job_api import JobApi
from raysm.contract.result import SERVICE_REASON
from raysm.local.outcome import Outcome
from raysm.local.server.definitions import Definition
from raysm.local.server.records import JobRecord
from raysm.local.server.validation import ApiError

__all__ = [
    "ENDS",
    "FAILURES",
    "INSUFFICIENT",
    "INTERNAL_ERROR",
    "EndReason",
    "TimeLimits",
    "check_interruption",
    "check_stop",
    "ended",
    "failure_reason",
]

EndReason: TypeAlias = Literal["stop", "interrupt", "runtime", "wait", "pending", "shutdown"]
"""Why a job is to end before its instances do."""

ENDS: Mapping[EndReason, tuple[str, str]] = {
    "stop": ("Stopped", "{} job stopped"),
    "runtime": ("MaxRuntimeExceeded", "{} job runtime exceeded MaxRuntimeInSeconds provided"),
    "wait": ("MaxWaitTimeExceeded", "{} job wait time exceeded MaxWaitTimeInSeconds provided"),
}
"""Secondary status and message of a job that was stopped."""

FAILURES: Mapping[EndReason, str] = {
    "shutdown": "InternalServerError: the embedded SageMaker was shut down while the job ran",
    "pending": "CapacityError: the machine's cores were not free within MaxPendingTimeInSeconds; wait for other jobs",
}
"""Why a job Failed by which it was ended."""


INSUFFICIENT = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
"""In AWS's words, as jobs that failed by it show them (DIAGNijmegen/rse-grand-challenge, issue 2631)."""

INTERNAL_ERROR = "We encountered an internal error. Please try again."
"""What AWS says behind ``InternalServerError:`` (sagemaker-python-sdk, issue 2496)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeLimits:
    """How long a job may wait and run; all in seconds."""

    max_runtime_s: float
    """That its instances may run, in all attempts."""
    max_wait_s: float | None
    """From the request to the end, waiting and running; None is no limit."""
    max_pending_s: float | None
    """That it may wait for its turn; None is no limit."""

    @classmethod
    def of(cls, definition: Definition) -> "TimeLimits":
        """Return the limits of a job."""
        return cls(
            max_runtime_s=definition.max_runtime_s,
            max_wait_s=definition.max_wait_s,
            max_pending_s=definition.max_pending_s,
        )

    def exceeded(self, *, waited_s: float, ran_s: float, pending: bool) -> EndReason | None:
        """Return the limit that is exceeded.

        Args:
            waited_s: Since the request.
            ran_s: That its instances have run in all.
            pending: Whether it waits for its turn.
        """
        if self.max_wait_s is not None and waited_s > self.max_wait_s:
            return "wait"
        if ran_s > self.max_runtime_s:
            return "runtime"
        # No more once its instances run: it is not pending then.
        if pending and self.max_pending_s is not None and waited_s > self.max_pending_s:
            return "pending"
        return None

    def left_s(self, *, waited_s: float, ran_s: float) -> float:
        """Return the seconds until one of them is exceeded, where the instances run."""
        # Without max_pending_s, which counts only until the instances run.
        left_s = self.max_runtime_s - ran_s
        return left_s if self.max_wait_s is None else min(left_s, self.max_wait_s - waited_s)


def ended(reason: EndReason, title: str) -> tuple[str, str]:
    """Return secondary status and message of a job that was stopped for a reason."""
    secondary, message = ENDS.get(reason, ENDS["stop"])
    return secondary, message.format(title)


def failure_reason(api: JobApi, outcome: Outcome) -> str:
    """Return what AWS says of a job whose instances failed, at most 1024 characters.

    As public examples show it: a training job's own words stand between ``AlgorithmError:`` and its exit code; those of
    a Processing job are its ExitMessage, and its FailureReason is always the same (the integration tests of AWS's
    sagemaker-spark-container compare it).
    """
    if api.has_exit_message:
        return "AlgorithmError: See job logs for more information"
    # Cut with the wrapper, which is part of what SageMaker keeps.
    return f"AlgorithmError: {outcome.failure_reason or ''}, exit code: {outcome.exit_code}"[:SERVICE_REASON]


def check_stop(record: JobRecord) -> None:
    """Raise ApiError if the job has ended and cannot be stopped."""
    if record.final:
        raise ApiError(
            "ValidationException",
            f"The request was rejected because the {record.kind} job is in status {record.status}.",
        )


def check_interruption(record: JobRecord, *, spot: bool, is_ending: bool = False) -> None:
    """Raise ApiError if the job does not run on spot capacity now, so that it cannot be interrupted."""
    if not spot:
        raise ApiError(
            "ValidationException",
            f"the job {record.name} cannot be interrupted: it does not run on spot capacity "
            "(EnableManagedSpotTraining); stop it instead",
            409,
        )
    if record.secondary != "Training" or is_ending:
        raise ApiError(
            "ValidationException",
            f"the job {record.name} cannot be interrupted now: it is in status {record.secondary}, not Training",
            409,
        )
