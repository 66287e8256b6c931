"""An attempt: one job of a row, from the intent to its end."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raysm.core.client.costs.cap import STOP_GRACE_S

MAX_RUNTIME_S = 86_400
"""Time limit of a row that sets none, the default of ``raysm.Limits``."""


def most_billed_s(max_runtime_s: int) -> int:
    """Return the most seconds that one instance of a job with this time limit is billed for."""
    return max_runtime_s + STOP_GRACE_S


class AttemptState(StrEnum):
    """The state of an attempt; only the service's answer ends one."""

    INTENDED = "intended"
    """It is stored and counted in the budget; the service may not know it yet."""
    MAYBE = "maybe"
    """It was sent, and the answer was lost: only the service knows whether there is a job."""
    SENT = "sent"
    """The service took it."""
    PENDING = "pending"
    """It waits for its instances."""
    RUNNING = "running"
    """It has its instances."""
    ENDED = "ended"
    """The service says that it has ended, or refused it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try of a row: one job of the service, from the intent to its end.

    Times are seconds since the epoch on the controller's clock; None is not yet.
    """

    row_key: str
    number: int
    name: str
    """The job's name: a function of grid, key and number, so that sending it twice makes one
    job."""
    region: str
    instance_type: str
    count: int
    spot: bool = False
    state: AttemptState = AttemptState.INTENDED
    ending: str = ""
    """Class of its end (``raysm.features.grid.endings``); empty while it is open."""
    reason: str = ""
    intended_s: float = 0.0
    sent_s: float | None = None
    started_s: float | None = None
    """When its instances began to work, by the service's clock."""
    waited_s: float | None = None
    """Seconds from its creation to that moment, both by the service's clock.

    The controller may be suspended between reading its own clock and calling Create.
    """
    ended_s: float | None = None
    training_s: float | None = None
    """Seconds that it ran, as the service says."""
    billable_s: float | None = None
    """Seconds that one of its instances is billed for, as the service says."""
    max_runtime_s: int = MAX_RUNTIME_S
    """Seconds after which the service stops it; the budget counts them until it has ended."""
    usd_per_hour: float | None = None
    """On-demand price of one instance, the highest if there are several types; None is unknown."""
    price_version: str = ""
    calls: int = 0
    """Number of its Create calls, for their backoff; a refusal that ends it is not counted."""
    retry_s: float = 0.0
    """Time before which its Create is not sent again; unlike ``waited_s``, not a duration."""
    is_doubtful: bool = False
    """True if the answer to a Create was lost, so that its job may still appear."""
    watch_s: float = 0.0
    """Time until which a refused attempt's job may appear and counts in the budget."""
    stop_reason: str = ""
    """Why it should be stopped: ``user`` or ``patience``; empty if it should not."""
    asked_s: float | None = None
    """When the service was last asked to stop it."""
    seen: str = ""
    """Status and time that List last showed; a change causes a call of Describe."""
    choice: str = ""
    """Prices by type, as JSON, while the service chooses one of several types; else empty."""
    interruptions: int = 0
    """Number of times that its spot capacity was taken back; the service restarts the job each
    time."""
    interrupted_s: float = 0.0
    """Seconds that it had run at the interruptions."""

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(json.loads(self.choice)) if self.choice else (self.instance_type,)

    def settled(self, instance_type: str | None) -> dict[str, Any]:
        """Return the fields that change once the service has chosen one of several types."""
        if not self.choice or instance_type not in self.types:
            return {}
        return {
            "instance_type": instance_type,
            "usd_per_hour": json.loads(self.choice)[instance_type],
            "choice": "",
        }

    @property
    def usd(self) -> float | None:
        """Its cost; None, and never 0, if the price or the billed time is unknown."""
        if self.usd_per_hour is None or self.billable_s is None:
            return None
        return self.usd_per_hour * self.count * self.billable_s / 3600

    @property
    def again_usd(self) -> float:
        """The part of its cost, at most, for work done again after interruptions."""
        return (
            min(1.0, self.interrupted_s / self.training_s) * (self.usd or 0.0)
            if self.training_s
            else 0.0
        )
