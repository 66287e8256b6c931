"""One try of a task: one job of the service, from the intent to send it to its end. The store keeps them."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["AGAIN", "Attempt", "AttemptState", "TaskState"]


class TaskState(StrEnum):
    """Where a task stands."""

    WAITING = "waiting"
    """It has no open attempt, and is to get one."""
    PLACED = "placed"
    """It has an open attempt."""
    DONE = "done"
    """Its result is there."""
    FAILED = "failed"
    """It is not tried again: its own fault, or its retries are used up."""
    STOPPED = "stopped"
    """Somebody stopped it."""
    IMPOSSIBLE = "impossible"
    """No place can ever take it."""
    SKIPPED = "skipped"
    """The very same was done before."""

    @property
    def final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        # All others: a state that is added later ends a task unless it is named here.
        return self not in (TaskState.WAITING, TaskState.PLACED)


AGAIN = (TaskState.FAILED, TaskState.IMPOSSIBLE, TaskState.STOPPED)
"""What a user's ``retry`` takes up again; what is done stays done."""


class AttemptState(StrEnum):
    """Where an attempt stands.

    There is no "failed controller", and no "unreachable": only the service's word ends an attempt, and of a region that
    is silent the store says since when (``Store.heard``).
    """

    # Written down before Create is called: a controller that dies in between knows of it.
    INTENDED = "intended"
    """It is decided on and paid for in the budget; whether the service knows it is not known."""
    # Create was called, and its answer never came: only the service knows whether there is a job.
    MAYBE = "maybe"
    """It was sent, and the answer was lost."""
    SENT = "sent"
    """The service took it."""
    PENDING = "pending"
    """It waits for its instances."""
    RUNNING = "running"
    """It has them."""
    ENDED = "ended"
    """The service says that it has ended, or refused it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try of a task. Moments are seconds since the epoch on the controller's clock; None is not yet."""

    task: str
    """Key of its task."""
    number: int
    """From 1; with each new try one more."""
    name: str
    """Of its job: a function of grid, key and number alone, so that sending it twice makes one job."""
    region: str
    """Where it was sent."""
    instance_type: str
    """What its instances are."""
    count: int
    """How many."""
    spot: bool = False
    """Whether they are spare capacity."""
    state: AttemptState = AttemptState.INTENDED
    """Where it stands."""
    ending: str = ""
    """Class of its end (``raysm.grid.endings``); empty while it is open."""
    reason: str = ""
    """The service's words about its end."""
    intended_s: float = 0.0
    """When it was decided on."""
    sent_s: float | None = None
    """When the service took it."""
    started_s: float | None = None
    """When its instances began to work."""
    ended_s: float | None = None
    """When it ended."""
    training_s: float | None = None
    """Seconds that it ran, as the service says."""
    billable_s: float | None = None
    """Seconds that one instance of it is billed for, as the service says: fewer with spot."""
    max_runtime_s: int = 86_400
    """Seconds after which the service stops it: what the budget counts with until it has ended."""
    usd_per_hour: float | None = None
    """On-demand price of one instance when it was decided on, of a choice that of the dearest; None is unknown."""
    price_version: str = ""
    """Which table of prices said so."""
    calls: int = 0
    """How often Create was called for it."""
    retry_s: float = 0.0
    """When Create may be called again."""
    is_doubtful: bool = False
    """Whether the answer to a Create was lost, and none has settled it: then one may land late."""
    watch_s: float = 0.0
    """Until when a refused one is looked for nevertheless, and counted in the budget, as a Create may land late."""
    wish: str = ""
    """Why it is to be stopped: ``user``, ``patience``; empty is not."""
    asked_s: float | None = None
    """When the service was last asked to stop it."""
    seen: str = ""
    """What List last said of it: Describe is asked where that changes."""
    choice: str = ""
    """Prices of the types of which the service takes the first that it has, as JSON; empty is its own alone."""
    interruptions: int = 0
    """How often its spot capacity was taken back; the service itself started it again."""
    interrupted_s: float = 0.0
    """Seconds that it had run when that happened: of these it did again what it had not saved."""

    @property
    def types(self) -> tuple[str, ...]:
        """Of what its instances may be."""
        return tuple(json.loads(self.choice)) if self.choice else (self.instance_type,)

    def settled(self, instance_type: str | None) -> dict[str, Any]:
        """Return what changes once the service has taken one of its types; nothing where it had no choice."""
        if not self.choice or instance_type not in self.types:
            return {}
        return {"instance_type": instance_type, "usd_per_hour": json.loads(self.choice)[instance_type], "choice": ""}

    @property
    def usd(self) -> float | None:
        """What it has cost; None where the price or the billed time is not known."""
        # Unknown, and never 0: a budget must not take it for free.
        if self.usd_per_hour is None or self.billable_s is None:
            return None
        return self.usd_per_hour * self.count * self.billable_s / 3600

    @property
    def again_usd(self) -> float:
        """What of its cost was, at most, for work that it did again after an interruption; what is unknown is 0."""
        # Only its program knows what it had saved by then.
        return min(1.0, self.interrupted_s / self.training_s) * (self.usd or 0.0) if self.training_s else 0.0

    @property
    def worst_usd(self) -> float | None:
        """What it can cost at most; None where its price is unknown."""
        # What a budget sets aside for it while it runs; what it did not take comes back at its end.
        return None if self.usd_per_hour is None else self.usd_per_hour * self.count * self.max_runtime_s / 3600
