"""The time limit that a cap on the cost of a job allows.

The service enforces it, so that no program has to watch.

SageMaker bills a job by the second for each of its instances
(https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html,
``BillableTimeInSeconds``), and their volumes by the GB and month
(https://aws.amazon.com/sagemaker/ai/pricing/). It sends SIGTERM at ``MaxRuntimeInSeconds`` and
kills the job 120 s later
(https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html). That limit
counts all attempts of a job with a retry strategy together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysm.core.protocol.names import MAX_COST, MAX_COST_S
from raysm.core.request.durations import brief_duration
from raysm.errors import InvalidRequest

STOP_GRACE_S = 120
"""Seconds that the service gives a job to save its work after its time limit, and bills."""
MIN_PAID_S = 300
"""A cap that pays for a shorter run on AWS is refused: starting a cluster takes minutes."""
POOL_IS_OVER = ("Terminated", "Reused")
"""Statuses of a warm pool that is not billed for any longer."""
MIN_FOLLOW_UP_S = 60
"""A follow-up job that could not run for a minute is not sent: the budget is used."""


def paid_seconds(max_cost: float, usd_per_hour: float, keep_alive_s: int = 0) -> int:
    """Return the seconds for which each instance of a job may be billed.

    ``floor(3600 * max_cost / usd_per_hour) - keep_alive_s``, where ``usd_per_hour`` is the price of
    all instances together: for each of them its price on demand, plus GB * USD per GB and month /
    730 h for its volume. The warm pool, which is billed after the job at the same rate, is taken
    off once: a follow-up job takes the pool of the job before it over.
    """
    return math.floor(3600 * max_cost / usd_per_hour) - keep_alive_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Cap:
    """What a job may cost, and the limit that follows from it."""

    max_cost: float
    """USD for the job, its follow-up jobs and its warm pool."""
    usd_per_hour: float
    """USD for all instances with their volumes; of several choices, the most expensive one."""
    paid_s: int
    """Seconds for which each instance may be billed, in the job and its follow-ups together."""
    max_runtime_s: int
    """The job's time limit: the user's, or ``paid_s`` without the 120 s of the stop."""
    has_follow_ups: bool

    @property
    def is_reason(self) -> bool:
        """True if the cap decides the time limit; False if the user's own limit is shorter."""
        return self.max_runtime_s == self.paid_s - STOP_GRACE_S

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the job that tell its cap to each process that describes the job.

        There are none if the cap has no effect.
        """
        if not (self.is_reason or self.has_follow_ups):
            return {}
        return {MAX_COST: f"{self.max_cost:g}", MAX_COST_S: str(self.paid_s)}


def cap(
    max_cost: float,
    *,
    usd_per_hour: float,
    max_runtime_s: int,
    has_follow_ups: bool = False,
    keep_alive_s: int = 0,
    min_s: int = MIN_PAID_S,
) -> Cap:
    """Return the cap of a job: its limit is ``min(max_runtime_s, paid_seconds(…) - 120)``.

    Args:
        max_cost: USD that it may cost.
        usd_per_hour: USD for all instances together.
        max_runtime_s: The limit that the user chose.
        has_follow_ups: True if other jobs may continue it after that limit.
        keep_alive_s: Seconds for which its instances stay warm.
        min_s: The shortest limit that is worth a start.

    Raises:
        InvalidRequest: The cap does not pay for ``min_s`` seconds.
    """
    paid_s = paid_seconds(max_cost, usd_per_hour, keep_alive_s)
    if paid_s - STOP_GRACE_S < min_s:
        warm = f", its {brief_duration(keep_alive_s)} in a warm pool" if keep_alive_s else ""
        needed_s = min_s + STOP_GRACE_S + keep_alive_s
        # Rounded up, so that the amount that the message names is enough.
        least = math.ceil(needed_s * usd_per_hour / 36) / 100
        raise InvalidRequest(
            f"max_cost={max_cost:g} does not pay for {brief_duration(min_s)}: "
            f"the instances cost {usd_per_hour:,.4g} USD an hour together, "
            f"also in the {STOP_GRACE_S} s of a stop{warm}",
            remedy=f"give at least {least:,.2f} USD, or fewer or cheaper instances",
        )
    return Cap(
        max_cost=max_cost,
        usd_per_hour=usd_per_hour,
        paid_s=paid_s,
        max_runtime_s=min(max_runtime_s, paid_s - STOP_GRACE_S),
        has_follow_ups=has_follow_ups,
    )


def cap_in(answer: Mapping[str, Any]) -> tuple[float, int] | None:
    """Return the USD and ``paid_s`` of a job's cap from Describe's answer; None if it has none."""
    environment = answer.get("Environment") or {}
    try:
        return float(environment[MAX_COST]), int(environment[MAX_COST_S])
    except (KeyError, ValueError):  # the user may have set variables of these names
        return None


def left_seconds(answer: Mapping[str, Any]) -> int | None:
    """Return how long each instance of a follow-up may be billed, from Describe's answer.

    The answer is about the job before it.

    What the service does not say yet counts at its maximum. None if the job has no cap.
    """
    found = cap_in(answer)
    if found is None:
        return None
    billed_s: float | None = answer.get("BillableTimeInSeconds")
    if billed_s is None:
        billed_s = limit_of(answer) + STOP_GRACE_S
    return found[1] - math.ceil(billed_s) - math.ceil(warm_seconds(answer))


def warm_seconds(answer: Mapping[str, Any]) -> float:
    """Return how long the warm pool of a described job is billed, at most if it is not over.

    The pool waits until a follow-up takes it over, or until its end if the follow-up comes too
    late.
    """
    most_s: float = answer.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds", 0)
    pool = answer.get("WarmPoolStatus", {})
    if pool.get("Status") not in POOL_IS_OVER:
        return most_s
    billed_s: float = pool.get("ResourceRetainedBillableTimeInSeconds", most_s)
    return billed_s


def limit_of(answer: Mapping[str, Any]) -> int:
    """Return the time limit of a job, as Describe answers."""
    return int(answer.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", 0))


def pays_for_follow_up(answer: Mapping[str, Any]) -> bool:
    """Return True unless a cap leaves too little for a follow-up of the described job."""
    left_s = left_seconds(answer)
    return left_s is None or left_s - STOP_GRACE_S >= MIN_FOLLOW_UP_S


def follow_up_limits(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of Create that keep a follow-up within the cap; empty without a cap."""
    left_s = left_seconds(answer)
    if left_s is None:
        return {}
    # A first job that its cap ended had a shorter limit than the user's, which is the same for
    # each follow-up: the rest of the cap is shorter still.
    limit_s = min(limit_of(answer), left_s - STOP_GRACE_S)
    return {
        "StoppingCondition": {**answer["StoppingCondition"], "MaxRuntimeInSeconds": limit_s},
        "Environment": {**answer["Environment"], MAX_COST_S: str(left_s)},
    }


def cap_that_ended(answer: Mapping[str, Any]) -> float | None:
    """Return the USD of the cap whose limit the job reached.

    None means that the limit was its user's.
    """
    found = cap_in(answer)
    if found is None:
        return None
    is_reason = limit_of(answer) >= found[1] - STOP_GRACE_S
    return found[0] if is_reason or not pays_for_follow_up(answer) else None
