"""What the jobs of a server share, and the interface of a job's life, which ``run`` and ``simulated`` implement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from raysm.local.instances import Instance
from raysm.local.scenario import Scenario
from raysm.local.server.cores import Cores
from raysm.local.server.market import Stock
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.timers import Timers
from raysm.local.server.warm_pools import WarmPools

__all__ = ["JobLife", "Services"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What all jobs share."""

    records: Records
    """Of all jobs."""
    moto: MotoServices
    """S3, CloudWatch …"""
    objects: Objects
    """By URI."""
    cores: Cores
    """The machine's cores."""
    pools: WarmPools
    """Of jobs whose instances are kept."""
    stock: Stock
    """The instances that the regions have."""
    timers: Timers = field(default_factory=Timers)
    """What is to happen later."""
    stop_grace_s: float = 120.0
    """Seconds from SIGTERM to SIGKILL."""
    scenario: Scenario = field(default_factory=Scenario)
    """What AWS would do to them."""
    chance: Random = field(default_factory=Random)
    """Decides whatever the scenario leaves to chance."""


class JobLife(Protocol):
    """Carries one job out, whose record was added; nothing happens before ``start``."""

    @property
    def record(self) -> JobRecord:
        """What is known of it now."""

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Its instances by host, while they run."""

    @property
    def running(self) -> bool:
        """Whether something is still done for it."""

    def await_end(self, timeout_s: float) -> bool:
        """Wait until its record is final, at most so long; return whether it is."""

    def await_change(self, seen: int, timeout_s: float) -> int:
        """Wait for another line or status than the ``seen``-th, at most so long; return how many there are."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Ask it to end; raises ApiError where it has ended."""

    def interrupt(self) -> None:
        """Take its spot capacity away; raises ApiError where it has none."""

    def shut_down(self) -> None:
        """End it at once, since the server ends."""
