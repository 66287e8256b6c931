"""What a kind of target does for the client: the interface, and how often jobs are polled."""

import abc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from raysm import __version__
from raysm.contract.home import Clock
from raysm.request import JobRequest, Target

__all__ = [
    "Bucket",
    "Clients",
    "Connection",
    "Polling",
    "Resolved",
    "SET_REGION",
    "client_options",
]


MOST_BETWEEN_LOOKS_S = 20.0
"""Followers of a job of a hundred instances still want to see its lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Polling:
    """How often a job is asked how it is: slower and slower, up to a limit."""

    first_s: float
    """Seconds until the second question."""
    most_s: float
    """Seconds between the later ones."""
    growth: float = 1.5
    """Each pause is so many times the one before."""
    patience_s: float = 300.0
    """Seconds for which the service may be away before a wait for a job fails."""
    late_s: float = 0.0
    """Seconds that the last lines of a job that has ended may need to reach the log service."""

    stream_s: float = 0.0
    """Seconds for each stream of a log between two looks at it."""

    def between_looks(self, pause_s: float, streams: int) -> float:
        """Return how many seconds to leave between two looks at a log of so many streams."""
        # Each stream takes a call, and CloudWatch limits these for the account: all who follow jobs share it.
        return max(pause_s, min(streams * self.stream_s, MOST_BETWEEN_LOOKS_S))

    def pauses(self) -> Iterator[float]:
        """Yield the pauses, in seconds, without end."""
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.most_s, pause * self.growth)


SET_REGION = "give --region (AWS(region=…) in Python), or run aws configure set region REGION"

Clients: TypeAlias = Callable[[str], Any]
"""Returns the boto3 client of a service by its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Where payloads go, and results that do not lie in a folder."""

    name: str
    """Of the bucket."""
    is_named: bool = False
    """Whether the user named it: then it has to be there, and is not made."""
    owner: str | None = None
    """The account that it has to belong to; None is any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A target for one job, with all that depends on the job decided."""

    target: Target
    """As the plan takes it."""
    image: str = ""
    """Which image was taken where the user named none, for people; empty where none had to be."""


class Connection(abc.ABC):
    """One target as the client uses it.

    Attributes:
        polling: How often jobs are asked how they are.
    """

    polling: Polling
    repeats: bool = True
    """Whether botocore repeats calls of SageMaker that were throttled, or got lost; a grid does it by itself."""

    @property
    def profile(self) -> str:
        """The profile of the AWS configuration whose credentials it has; empty is the default one."""
        return ""

    @property
    @abc.abstractmethod
    def home(self) -> Path:
        """Below which lies on this machine what belongs to jobs."""

    @abc.abstractmethod
    def region(self, clients: Clients) -> str:
        """Return the region.

        Raises:
            ServiceError: None is set.
        """

    @abc.abstractmethod
    def bucket(self, region: Callable[[], str], account: Callable[[], str]) -> Bucket:
        """Return the bucket; region and account are asked for only where its name takes them."""

    @abc.abstractmethod
    def data_root(self, bucket_root: str) -> str:
        """Return the prefix below which results lie, where ``bucket_root`` is that of payloads."""

    @abc.abstractmethod
    def make_client(self, name: str) -> Any:
        """Return a boto3 client of the service ``name``."""

    @property
    def clock(self) -> Clock:
        """The clock by which it dates its answers."""
        return Clock()

    @property
    def lists_quotas(self) -> bool:
        """Whether its quotas can be asked for as they are: the embedded server is not started for them alone."""
        return True

    @property
    def lists_prices(self) -> bool:
        """Whether it has prices of its own, which GetProducts tells; else AWS's public ones hold."""
        return False

    @abc.abstractmethod
    def resolve(self, request: JobRequest, region: Callable[[], str]) -> Resolved:
        """Return the target as a job has it; the region is asked for only where it decides.

        Raises:
            InvalidRequest: The job cannot be had there.
        """

    def reconnect(self, error: Exception, *, is_followed: bool = False) -> bool:
        """Whether a call that failed so can be made once more, with clients made anew.

        Raises:
            ServiceError: The service was ended while a job of it was followed (``is_followed``).
        """
        return False

    def wait_for_end(self, job: str, pause_s: float, most_s: float) -> None:
        """Wait until a job may have ended: ``pause_s``, but no longer than ``most_s``."""
        time.sleep(min(pause_s, most_s))

    def wait_for_change(self, job: str, seen: int, pause_s: float, most_s: float) -> int:
        """Wait until a job may have written another line: ``pause_s``, but no longer than ``most_s``.

        Args:
            job: Its name.
            seen: What the last wait returned; 0 at first.
            pause_s: Seconds, where the target does not tell by itself.
            most_s: Seconds after which the caller wants to be back.

        Returns:
            For the next wait.
        """
        time.sleep(min(pause_s, most_s))
        return seen


def client_options(*, repeats: bool = True, **more: Any) -> Any:
    """Return botocore's configuration of every client; of one that does not repeat, a call is made once."""
    # Imported on first use, as boto3.
    from botocore.config import Config

    # botocore's default, legacy, knows fewer of the errors that pass.
    retries = {"mode": "standard", **({"max_attempts": 5} if repeats else {"total_max_attempts": 1})}
    # Ten connections, as botocore has them by default, are fewer than there are transfers at a time.
    return Config(retries=retries, user_agent_extra=f"raysm/{__version__}", max_pool_connections=32, **more)
