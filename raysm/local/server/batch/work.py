"""What an attempt of a job is: a training job, or a program. A kind answers for itself; ``run`` knows none of them.

A further kind is its module and one entry in ``service``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from raysm.local.server.batch.records import BatchJob

__all__ = ["NO_CAPACITY", "NotNow", "Seen", "Work"]

NO_CAPACITY = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
"""How the reason of a job begins that waits for capacity: what a queue's jobStateTimeLimitActions name."""


# Not an ApiError: nobody is refused by it, and no client ever sees it but as a job's reason.
class NotNow(Exception):
    """An attempt cannot begin now, and may later; the message is told as the job's reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What has become of an attempt."""

    status: str
    """One of ACTIVE, or of FINAL where it has ended."""
    reason: str = ""
    """Why it ended."""
    exit_code: int | None = None
    """Of a program."""
    # A fact of its own, and not read from the reason: Batch repeats such an attempt without counting it.
    is_starved: bool = False
    """Whether it ended because there was no capacity for it."""


class Work(Protocol):
    """One kind of job.

    Attributes:
        environments: The key of a queue under which its environments stand.
        environment: The key of one of them in there.
        part: What they are, as their ARNs say.
    """

    # Facts of the kind, which no queue needs to know: it only says what it has.
    environments: str
    environment: str
    part: str

    def capacity(self, environment: Mapping[str, Any]) -> float:
        """Return how much an environment can run at a time."""

    def need(self, job: BatchJob) -> float:
        """Return how much of it a job takes."""

    def limit_s(self, job: BatchJob) -> float | None:
        """Return the seconds after which an attempt is ended; None is never."""

    def begin(self, job: BatchJob) -> str:
        """Begin the next attempt; return what it is.

        Raises:
            NotNow: It may begin later.
            ApiError: It never can.
        """

    def look(self, job: BatchJob) -> Seen:
        """Return what has become of the latest attempt."""

    def stop(self, job: BatchJob) -> None:
        """Ask the latest attempt to end; does nothing where it has."""

    def close(self) -> None:
        """End whatever runs, since the server ends."""
