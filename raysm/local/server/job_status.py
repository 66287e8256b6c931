"""The status of one job while it runs, and waiting for changes of it."""

import threading
from typing import Any

from raysm.contract.result import SERVICE_REASON
from raysm.local.server.cores import Ticket
from raysm.local.server.records import JobRecord, Records

__all__ = ["Changes", "HasStatus", "JobStatus"]


class Changes:
    """Counts what changes; may be used from any thread."""

    def __init__(self) -> None:
        """Begin with none."""
        self._count = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """Something has changed."""
        # A line takes a microsecond more by it: nothing of the job waits for whoever follows it.
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout_s: float) -> int:
        """Wait until the count is another one than ``seen``, at most so long; return it."""
        with self._changed:
            # Another one, not a higher one: who followed the job at a server that was killed has that one's count.
            self._changed.wait_for(lambda: self._count != seen, timeout_s)
            return self._count


class JobStatus:
    """The record of one job while it lives.

    Attributes:
        final: Set when it has entered its last status.
        changes: Of its status, and of what others add, as lines of its log.
    """

    def __init__(self, records: Records, record: JobRecord) -> None:
        """Speak of a job whose record was added."""
        self._records = records
        self._api = record.api
        self._name = record.name
        self._region = record.region
        self.final = threading.Event()
        self.changes = Changes()

    @property
    def record(self) -> JobRecord:
        """The record as it is now."""
        return self._records.get(self._api, self._name, self._region)

    def update(self, **changes: Any) -> None:
        """Change fields of the record."""
        self._records.update(self._api, self._name, self._region, **changes)

    def enter(self, secondary: str, message: str, **changes: Any) -> None:
        """Enter a status of a job that goes on; one that is being stopped shows that, whatever it still does."""
        with self._records.held():
            # Uploading alone follows Stopping also on AWS: what a stopped job left by the end of its grace is kept.
            if self.record.status == "Stopping" and secondary != "Uploading":
                self.update(**changes)
            else:
                self._records.advance(self.record, secondary, message, **changes)
        self.changes.add()

    def enter_training(self) -> None:
        """Enter the status of a job whose instances start."""
        # Of the first attempt: the start does not move where a job starts again.
        started_s = self.record.started_s or self._records.clock.now()
        self.enter("Training", "Training image download completed. Training in progress.", started_s=started_s)

    def enter_stopping(self) -> None:
        """Enter the status of a job that is asked to end."""
        with self._records.held():
            if self.record.status == "InProgress":
                message = f"Stopping the {self._api.kind} job"
                self._records.advance(self.record, "Stopping", message, status="Stopping")

    def wait_for_capacity(self, reason: str) -> None:
        """Enter the status of a job that is not yet its turn; ``reason`` says what it waits for."""
        self.enter("Pending", self._waiting(reason))

    def explain_waiting(self, ticket: Ticket, reason: str) -> None:
        """Say what a job that waits for its turn waits for now."""
        with self._records.held():
            if not ticket.granted and self.record.secondary == "Pending":
                self._records.explain(self.record, self._waiting(reason))

    def _waiting(self, reason: str) -> str:
        # There is none where its turn has just come.
        return f"{self._api.title} job waiting for capacity" + (f": {reason}" if reason else "")

    def finish(self, status: str, secondary: str, message: str, reason: str | None = None, **changes: Any) -> None:
        """Enter the last status."""
        self._records.advance(
            self.record,
            secondary,
            message,
            status=status,
            ended_s=self._records.clock.now(),
            failure_reason=None if reason is None else reason[:SERVICE_REASON],
            **changes,
        )
        # Behind the record, which whoever waits for the end reads next.
        self.final.set()
        self.changes.add()


class HasStatus:
    """What whoever carries a job out tells of it, by the ``_status`` that it keeps."""

    _status: JobStatus

    @property
    def record(self) -> JobRecord:
        """What is known of it now."""
        return self._status.record

    def await_end(self, timeout_s: float) -> bool:
        """Wait until its record is final, at most so long; return whether it is."""
        return self._status.final.wait(timeout_s)

    def await_change(self, seen: int, timeout_s: float) -> int:
        """Wait for another line or status than the ``seen``-th, at most so long; return how many there are."""
        return self._status.changes.wait(seen, timeout_s)
