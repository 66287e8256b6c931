"""What all jobs of a server share: where they are recorded, what they read and write, and what AWS would do to them."""

from dataclasses import dataclass, field
from random import Random

from raysm.local.scenario import Scenario
from raysm.local.server.capacity import Capacity
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.records import Records
from raysm.local.server.stock import Stock
from raysm.local.server.timers import Timers
from raysm.local.server.warm_pools import WarmPools

__all__ = ["Services"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What all jobs share."""

    records: Records
    """Of all jobs."""
    moto: MotoServices
    """S3, CloudWatch …"""
    objects: Objects
    """By URI."""
    capacity: Capacity
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
