"""The status of one job while it runs.

It has AWS's messages for the job's end, and a count of changes to wait for.
"""

import abc
import threading
from collections.abc import Mapping
from typing import Any

from raysm.core.protocol.job_api import JobApi
from raysm.core.protocol.result import SERVICE_REASON
from raysm.local.instances import Instance
from raysm.local.local_job import Outcome
from raysm.local.server.definitions import Definition, EndReason, request_module
from raysm.local.server.records import JobRecord
from raysm.local.server.services import Services
from raysm.local.server.validation import ApiError

ENDS: Mapping[EndReason, tuple[str, str]] = {
    "stop": ("Stopped", "{} job stopped"),
    "runtime": ("MaxRuntimeExceeded", "{} job runtime exceeded MaxRuntimeInSeconds provided"),
    "wait": ("MaxWaitTimeExceeded", "{} job wait time exceeded MaxWaitTimeInSeconds provided"),
}

FAILURES: Mapping[EndReason, str] = {
    "shutdown": "InternalServerError: the embedded SageMaker was shut down while the job ran",
    "pending": (
        "CapacityError: the machine's cores were not free within MaxPendingTimeInSeconds; wait for "
        "other jobs"
    ),
}

INTERNAL_ERROR = "We encountered an internal error. Please try again."
"""AWS's message after ``InternalServerError:`` (sagemaker-python-sdk, issue 2496)."""


def describe_end(reason: EndReason, title: str) -> tuple[str, str]:
    secondary, message = ENDS.get(reason, ENDS["stop"])
    return secondary, message.format(title)


def failure_reason(api: JobApi, outcome: Outcome) -> str:
    """Return AWS's failure reason for a job whose instances failed, at most 1024 characters.

    Public examples show these forms. The reason of a Processing job is always the same (the
    integration tests of AWS's sagemaker-spark-container compare it); the job's own message is its
    ExitMessage.
    """
    if api.has_exit_message:
        return "AlgorithmError: See job logs for more information"
    return f"AlgorithmError: {outcome.failure_reason or ''}, exit code: {outcome.exit_code}"[
        :SERVICE_REASON
    ]


def check_stop(record: JobRecord) -> None:
    if record.final:
        raise ApiError(
            "ValidationException",
            f"The request was rejected because the {record.kind} job is in status {record.status}.",
        )


def check_interruption(record: JobRecord, *, spot: bool, is_ending: bool) -> None:
    if not spot:
        raise ApiError(
            "ValidationException",
            f"the job {record.name} cannot be interrupted: it is not on spot capacity; stop it "
            "instead",
            409,
        )
    if record.secondary != "Training" or is_ending:
        raise ApiError(
            "ValidationException",
            f"the job {record.name} cannot be interrupted now: it is in status {record.secondary}, "
            "not Training",
            409,
        )


class JobLife(abc.ABC):
    """Runs one job whose record was added, and keeps its status.

    Nothing happens before ``start``.
    """

    def __init__(self, services: Services, record: JobRecord) -> None:
        self._services = services
        self._records = services.records
        self._created = record
        self._api = record.api
        self._definition: Definition = request_module(record.api).define(record)
        self._capacity = services.scenario.of(record.region).capacity
        # The job's own random generator, so that a seed gives the same run whatever other jobs
        # draw.
        self._chance = services.scenario.chance(record.name)
        self.final = threading.Event()
        self._changes = 0
        self._changed = threading.Condition()

    @property
    def record(self) -> JobRecord:
        return self._records.get(self._api, self._created.name, self._created.region)

    def update(self, **changes: Any) -> None:
        self._records.update(self._api, self._created.name, self._created.region, **changes)

    def enter(self, secondary: str, message: str, **changes: Any) -> None:
        with self._records.held():
            # On AWS too, only Uploading follows Stopping.
            if self.record.status == "Stopping" and secondary != "Uploading":
                self.update(**changes)
            else:
                self._records.advance(self.record, secondary, message, **changes)
        self.count_change()

    def enter_training(self) -> None:
        # The start of the first attempt is kept.
        started_s = self.record.started_s or self._records.clock.now()
        self.enter(
            "Training",
            "Training image download completed. Training in progress.",
            started_s=started_s,
        )

    def enter_stopping(self) -> None:
        with self._records.held():
            if self.record.status == "InProgress":
                message = f"Stopping the {self._api.kind} job"
                self._records.advance(self.record, "Stopping", message, status="Stopping")

    def explain_waiting(self, reason: str) -> None:
        with self._records.held():
            if self.record.secondary == "Pending":
                self._records.explain(self.record, self._waiting(reason))

    def _waiting(self, reason: str) -> str:
        # The reason is empty if the job's turn has just come.
        return f"{self._api.title} job waiting for capacity" + (f": {reason}" if reason else "")

    def finish(
        self, status: str, secondary: str, message: str, reason: str | None = None, **changes: Any
    ) -> None:
        self._records.advance(
            self.record,
            secondary,
            message,
            status=status,
            ended_s=self._records.clock.now(),
            failure_reason=None if reason is None else reason[:SERVICE_REASON],
            **changes,
        )
        # After the record, because a thread that waits for the end reads it next.
        self.final.set()
        self.count_change()

    def await_end(self, timeout_s: float) -> bool:
        return self.final.wait(timeout_s)

    def count_change(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def await_change(self, seen: int, timeout_s: float) -> int | None:
        """Wait up to ``timeout_s`` until the count of changes differs from ``seen``.

        Return it, or None at the end.
        """
        with self._changed:
            # "Differs", not "exceeds": the caller's count may be that of a server that was killed.
            self._changed.wait_for(lambda: self._changes != seen, timeout_s)
            return None if self.final.is_set() else self._changes

    @property
    @abc.abstractmethod
    def instances(self) -> Mapping[str, Instance]:
        """The instances by host, while they run."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """True while the server still works on the job."""

    @abc.abstractmethod
    def start(self) -> None:
        """Begin."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ask the job to end; raise ApiError if it has ended."""

    @abc.abstractmethod
    def interrupt(self) -> None:
        """Take the job's spot capacity back; raise ApiError if it has none."""

    @abc.abstractmethod
    def shut_down(self) -> None:
        """End the job at once, since the server ends."""

    def _fail(self, reason: str) -> None:
        self._finish("Failed", "Failed", f"{self._api.title} job failed", reason)

    @abc.abstractmethod
    def _finish(self, status: str, secondary: str, message: str, reason: str | None = None) -> None:
        """Enter the last status with what this life knows of the job."""
