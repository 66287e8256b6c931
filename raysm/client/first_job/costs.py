"""What the first hour may cost: a range, from what jobs mostly take to what their limits let them take.

Pure: what flows in are the trials and a price, what flows out are dollars.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raysm.client.first_job.trials import MOST_S, Trial

__all__ = ["Costs", "MOST_USD", "costs"]

MOST_USD = 1.0
"""The first hour is not sent where it may cost more."""

LIKELY_S = 300
"""Billed seconds of a small job, most of them for the image and for installing Ray: an estimate, not seen on AWS."""

AROUND_S = 300
"""Seconds that SageMaker may bill around what a job may run: downloading, uploading, stopping."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """A range."""

    likely_usd: float
    """Where each job takes a few minutes."""
    most_usd: float
    """Where each takes all that its limits let it."""


def costs(trials: Sequence[Trial], usd_per_hour: float) -> Costs:
    """Return what trials may cost where their instances together cost so much; spot is counted as any other."""
    # At one price, spot capacity's too: what that saves is seen only in the seconds that are billed.
    hours = len(trials) / 3600
    return Costs(likely_usd=hours * LIKELY_S * usd_per_hour, most_usd=hours * (MOST_S + AROUND_S) * usd_per_hour)
