"""Where the time of a job went that was sent and followed by a command: parts that add up to the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raysm.client.job.description import Description, SecondaryStatus

__all__ = ["Times"]

WAITS = (
    SecondaryStatus.STARTING,
    SecondaryStatus.PENDING,
    SecondaryStatus.LAUNCHING,
    SecondaryStatus.PREPARING,
)
"""Statuses of a job that has no instances yet."""

DOWNLOADS = (SecondaryStatus.DOWNLOADING, SecondaryStatus.DOWNLOADING_IMAGE)

LEAST_S = 0.05
"""Parts that would be shown as 0.0 s are left out."""


@dataclass(kw_only=True)
class Times:
    """When what happened, in seconds since the epoch; None where it was not seen."""

    started_s: float
    """The command began."""
    sent_s: float | None = None
    """The service had the job."""
    formed_s: float | None = None
    """The cluster was formed for the first time."""
    done_s: float | None = None
    """The head had the whole result."""
    ended_s: float | None = None
    """The result was here."""
    described: Description | None = field(default=None, repr=False)
    """How the service says the job went."""
    is_billed: bool = False
    """Whether the job ran on AWS, where it waits for instances; on this machine it waits for cores."""

    def parts(self, phases_s: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Return the whole time in seconds, and its parts by their names, in their order.

        Args:
            phases_s: Phases of the workload, as the manifest has them.
        """
        assert self.ended_s is not None, "the command has ended"
        whole_s = self.ended_s - self.started_s
        sent_s = self.started_s if self.sent_s is None else self.sent_s
        # Clocks of instances may differ a little from the one here: no part is negative.
        formed_s = min(max(sent_s, self.formed_s or sent_s), self.ended_s)
        done_s = min(max(formed_s, self.done_s or self.ended_s), self.ended_s)
        before_s = formed_s - sent_s
        waiting_s = min(self._spent_s(WAITS), before_s)
        downloading_s = min(self._spent_s(DOWNLOADS), before_s - waiting_s)
        phased_s = sum(phases_s.values())
        parts = {
            "preparing and sending": sent_s - self.started_s,
            "waiting for instances" if self.is_billed else "waiting for cores": waiting_s,
            "downloading": downloading_s,
            "forming the cluster": before_s - waiting_s - downloading_s,
            "starting the workload" if phases_s else "running the workload": max(0.0, done_s - formed_s - phased_s),
            **phases_s,
            "storing and bringing the result": self.ended_s - done_s,
        }
        return whole_s, {name: seconds for name, seconds in parts.items() if seconds >= LEAST_S or name in phases_s}

    def _spent_s(self, statuses: tuple[SecondaryStatus, ...]) -> float:
        if self.described is None:
            return 0.0
        spent = [
            (end - begin).total_seconds()
            for status, begin, end in self.described.transitions
            if status in statuses and begin is not None and end is not None
        ]
        return sum(spent)
