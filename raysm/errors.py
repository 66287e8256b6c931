"""Every error that raysm raises.

Errors of other libraries are translated into these once, at the boundary, with ``from``.
"""

import concurrent.futures
import contextlib
import shlex
from collections.abc import Iterable, Iterator
from typing import ClassVar


def option(name: str, value: str | None = None) -> str:
    """Return how an option is given, for messages.

    Users read messages at the command line, in a notebook and in a log.
    """
    # For the shell and for Python, which quote a name with blanks each in its own way.
    shown, written = ("…", "…") if value is None else (shlex.quote(value), repr(value))
    return f"--{name.replace('_', '-')} {shown} (in Python: {name}={written})"


def did_you_mean(
    name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6, prefix: str = ""
) -> str:
    """Return "; did you mean x or y?" with known names that are close to one, or "" if none is."""
    import difflib  # only after a mistake, because the import takes longer than most checks

    near = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
    return f"; did you mean {' or '.join(prefix + each for each in near)}?" if near else ""


class RaysmError(Exception):
    """The root of all errors of raysm.

    Attributes:
        remedy: How to fix it; empty if unknown. The message ends with it.
    """

    exit_status: ClassVar[int] = 1
    """Exit status of a command that ends with this error; 2 if nothing was started."""

    def __init__(self, message: str = "", *, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(f"{message}; {remedy}" if remedy else message)

    @property
    def problem(self) -> str:
        """The message without the remedy."""
        return str(self).removesuffix(f"; {self.remedy}")


class InvalidRequest(RaysmError, ValueError):
    """The request cannot work; nothing was started."""

    exit_status: ClassVar[int] = 2


class InvalidInput(InvalidRequest):
    """The data of a channel cannot be used by the workload."""


class InvalidConfig(RaysmError, ValueError):
    """A configuration file in the instance cannot be used."""

    exit_status: ClassVar[int] = 2


class InvalidPayload(InvalidConfig):
    """The payload is missing, torn, or does not match its digests."""


class MissingDependency(RaysmError):
    """A package that this half of raysm needs is not installed."""

    exit_status: ClassVar[int] = 2


@contextlib.contextmanager
def used_by(what: str) -> Iterator[None]:
    """Raise MissingDependency if an import within the block fails; ``what`` needs it."""
    try:
        yield
    except ImportError as error:
        raise MissingDependency(
            f"{what} needs {error.name}: python3 -m pip install {error.name}"
        ) from error


class NoRoom(RaysmError):
    """A disk has too little free space."""


class ClusterError(RaysmError):
    """The cluster did not form, or lost a part that it needs."""


class ClusterNotFormed(ClusterError):
    """Instances did not join before the deadline."""


class InstanceLost(ClusterError):
    """An instance died while the job ran."""


class RayFailed(ClusterError):
    """A required Ray process ended."""


class JobStalled(ClusterError):
    """A job showed no sign of life for ``limits.stall_s``; the message says who waits where."""


class ForeignListener(ClusterError, ConnectionError):
    """Another user's process listens at a port of this machine that a process of the job needs."""


class BlockFailed(RaysmError):
    """A block of share-nothing work failed: its function raised, or its retries are used up.

    Attributes:
        block: The block, as text.
        attempts: Number of attempts.
        remote_traceback: The last traceback, as the instance printed it.
        cause: The exception of the last attempt, ``KeyError: 'text'``.
    """

    def __init__(self, block: str, attempts: int, remote_traceback: str, cause: str) -> None:
        self.block = block
        self.attempts = attempts
        self.remote_traceback = remote_traceback
        self.cause = cause
        super().__init__(f"{self.summary}\n{remote_traceback}".rstrip())

    @property
    def summary(self) -> str:
        """The message without the traceback."""
        times = "" if self.attempts == 1 else f" {self.attempts} times, the last time"
        return f"{self.block} failed{times}: {self.cause}"

    def __reduce__(self) -> tuple[type["BlockFailed"], tuple[str, int, str, str]]:
        return type(self), (self.block, self.attempts, self.remote_traceback, self.cause)


class WorkerFailed(RaysmError):
    """A training worker failed; if several did, the one that made the others fail.

    Attributes:
        rank: Rank of the worker.
        host: Its instance.
        error_type: The exception's class, or ``SIGKILL``, ``exit code 3``.
        text: The exception's text.
        remote_traceback: As the instance printed it; empty where there is none.
        exit_code: The worker's; 128 plus the signal that killed it.
    """

    def __init__(
        self,
        rank: int,
        host: str,
        error_type: str,
        text: str,
        remote_traceback: str = "",
        exit_code: int = 1,
    ) -> None:
        self.rank = rank
        self.host = host
        self.error_type = error_type
        self.text = text
        self.remote_traceback = remote_traceback
        self.exit_code = exit_code
        # A worker that a signal killed has no text.
        super().__init__(f"rank {rank} on {host}: {error_type}: {text}".rstrip(": "))

    def __reduce__(self) -> tuple[type["WorkerFailed"], tuple[int, str, str, str, str, int]]:
        parts = (
            self.rank,
            self.host,
            self.error_type,
            self.text,
            self.remote_traceback,
            self.exit_code,
        )
        return type(self), parts


class MetricDiverged(RaysmError):
    """A metric became NaN or infinite, and the job ends at that, as ``stop_on_nan`` asks."""


class TrialFailed(RaysmError):
    """A trial of a sweep failed, or all of them did; the message is about the first one.

    Attributes:
        remote_traceback: As the instance printed it; for a script, the last lines that it wrote.
    """

    def __init__(self, message: str, remote_traceback: str = "") -> None:
        self.remote_traceback = remote_traceback
        super().__init__(message)


class ServiceError(RaysmError):
    """A call to the service failed; the message says which, why, and what to do.

    Attributes:
        code: The service's error code, ``AccessDenied``; empty where it could not be reached.
        is_transient: Whether the same call may succeed a little later.
    """

    def __init__(
        self, message: str, *, code: str = "", is_transient: bool = False, remedy: str = ""
    ) -> None:
        # No __reduce__: the message alone makes it, and pickle brings the parts back with __dict__.
        self.code = code
        self.is_transient = is_transient
        super().__init__(message, remedy=remedy)


class JobNotFound(ServiceError):
    """The service knows no job of that name."""


class CredentialsExpired(ServiceError):
    """The caller's credentials have expired; the job keeps running."""

    # Its own status: a script may log in and continue.
    exit_status: ClassVar[int] = 4


# Waiting for a job is like waiting for a future, which raises TimeoutError.
class NotDone(RaysmError, TimeoutError):
    """A job has not ended within the caller's timeout; it keeps running."""


class CallFailed(RaysmError):
    """A call of a session failed: its exception cannot be rebuilt here, or its process died.

    Attributes:
        error_type: The exception's class, or what happened instead.
        remote_traceback: As the instance printed it; empty where there is none.
    """

    def __init__(self, message: str, *, error_type: str = "", remote_traceback: str = "") -> None:
        # No __reduce__: the message alone makes it, and pickle brings the parts back with __dict__.
        self.error_type = error_type
        self.remote_traceback = remote_traceback
        super().__init__(message)


# A cancelled future raises CancelledError.
class CallCancelled(RaysmError, concurrent.futures.CancelledError):
    """A call of a session was interrupted."""


class SessionEnded(RaysmError):
    """A session is not open: it was never started, has ended, or is closing.

    A session that is closing accepts no more calls.
    """


IN_THE_JOB = "\n\nin the job:\n"
"""Separates the message of a JobFailed from the remote traceback."""


class JobFailed(RaysmError):
    """A job did not complete; the message is its failure reason.

    Attributes:
        job: The job's name; None where it has none.
        reason: The service's reason; empty if it has none.
        remote_traceback: The traceback of the job's own exception; empty where there is none.
    """

    def __init__(
        self, message: str, *, job: str | None = None, reason: str = "", remote_traceback: str = ""
    ) -> None:
        # No __reduce__: the message alone makes it, and pickle brings the parts back with __dict__.
        self.job = job
        self.reason = reason
        self.remote_traceback = remote_traceback
        super().__init__(message)

    @property
    def headline(self) -> str:
        """The message without the remote traceback."""
        return str(self).partition(IN_THE_JOB)[0]


# As a future that was cancelled raises it: code that waits for futures then handles jobs as well.
class JobStopped(JobFailed, concurrent.futures.CancelledError):
    """The job was stopped before it was done."""
