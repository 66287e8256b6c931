"""Who is next in a queue: jobs that wait and jobs that run flow in, the order flows out. Pure.

Without a scheduling policy first come is first served, the highest priority before all. With one, the share that uses
least for its weight is next: https://docs.aws.amazon.com/batch/latest/userguide/fair-share-scheduling.html
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from raysm.local.server.batch.records import BatchJob

__all__ = ["in_turn", "time_is_up", "weights_of"]

Need = Callable[[BatchJob], float]
"""Returns how much of an environment a job takes."""


def in_turn(
    waiting: Sequence[BatchJob], running: Sequence[BatchJob], weights: Mapping[str, float], need: Need
) -> Iterator[BatchJob]:
    """Yield jobs in the order in which they are to begin, each as if those before it had begun.

    Args:
        waiting: Those of one queue.
        running: Those of the same.
        weights: By share identifier, of a queue with a policy; less is more. Empty is none.
        need: What each takes.
    """
    left = sorted(waiting, key=lambda job: (-job.priority, job.created_s, job.index or 0))
    usage: Counter[str] = Counter()
    for job in running:
        usage[job.share] += round(need(job) * 1000)
    while left:
        # Priorities hold within a share: they are no way to take another's.
        shares = list(dict.fromkeys(job.share for job in left))
        share = min(shares, key=lambda name: usage[name] * weight_of(weights, name)) if weights else None
        job = next(job for job in left if share in (None, job.share))
        left.remove(job)
        usage[job.share] += round(need(job) * 1000)
        yield job


def weight_of(weights: Mapping[str, float], share: str) -> float:
    """Return the weight of a share: its own, that of its prefix (``team*``), else 1."""
    # The first that fits, in the policy's order: the service tells of no other.
    for name, weight in weights.items():
        if name == share or (name.endswith("*") and share.startswith(name[:-1])):
            return weight
    return 1.0


def weights_of(policy: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the weights of a scheduling policy by share identifier; some, also of one that names none."""
    shares = (policy.get("fairsharePolicy") or {}).get("shareDistribution") or []
    return {"": 1.0, **{item["shareIdentifier"]: float(item.get("weightFactor") or 1.0) for item in shares}}


def time_is_up(job: BatchJob, actions: Sequence[Mapping[str, Any]], now: float) -> Mapping[str, Any] | None:
    """Return the jobStateTimeLimitAction that ends a job, None where none does.

    Time that attempts were SCHEDULED without ever getting capacity counts too, as Batch counts it.
    """
    since_s = job.runnable_s
    for one in reversed(job.tries):
        # An attempt that really ran had its capacity: what was before it does not count.
        if not one.is_starved:
            break
        since_s = one.begun_s
    for action in actions:
        if job.reason.startswith(action["reason"]) and now - (since_s or now) >= action["maxTimeSeconds"]:
            return action
    return None
