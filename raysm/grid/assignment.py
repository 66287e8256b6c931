"""Which place each row of a grid would run in, for display: ``raysm grid plan`` shows it before anything is sent.

The assignment is greedy: rows take their turn by priority, the longest first, as the controller sends them, and each
takes the place that is cheapest for it when its turn comes, the wait for the place's quota included.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raysm.grid.place import Market, Offer
from raysm.grid.placement import Cheapest, Rate, Worth, refusal
from raysm.grid.task import Task

__all__ = ["Assigned", "assign"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    """One row in its place."""

    task: Task
    offer: Offer | None
    """None if no place takes the row."""
    worth: Worth | None = None
    """What the row costs there."""
    start_s: float = 0.0
    """Seconds from now until the quota of the place has room for it."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each place refuses a row that no place takes."""

    @property
    def count(self) -> int:
        """Instances of its job; 0 without a place."""
        return 0 if self.offer is None else self.task.count or self.offer.count

    @property
    def end_s(self) -> float | None:
        """Seconds from now until it ends; None if its duration is unknown."""
        if self.worth is None or self.worth.seconds is None:
            return None
        return self.start_s + self.worth.wait_s + self.worth.seconds


def assign(tasks: Sequence[Task], placement: Cheapest, market: Market | None = None) -> list[Assigned]:
    """Return every task with its place, in the order of ``tasks``.

    Args:
        tasks: The rows.
        placement: Returns what a place costs a row.
        market: Quotas and what others use of them; None is without quotas.
    """
    quotas = {} if market is None else market.quotas
    # For each place, when each instance of its quota is free: a heap of seconds from now. None is no quota.
    free = [
        None if quota is None else [0.0] * (quota.limit - quota.used_by_others)
        for quota in (quotas.get(offer.place) for offer in placement.offers)
    ]
    # Most rows differ only in parameters and durations: what they share is computed once.
    shapes: dict[tuple[object, ...], tuple[list[tuple[int, Rate]], dict[str, str]]] = {}
    types = {offer.place.instance_type: offer for offer in placement.offers}
    assigned: dict[int, Assigned] = {}
    for task in sorted(tasks, key=lambda task: (-task.priority, -(task.expected_s or 0.0), task.position)):
        key = (task.region, task.instance_types, task.spot, task.count, task.image, task.input_bytes)
        if key not in shapes:
            shapes[key] = _places_for(task, placement, [None if each is None else len(each) for each in free])
        rates, reasons = shapes[key]
        seconds = {name: placement.seconds(task, offer) for name, offer in types.items()}
        best: tuple[tuple[int, float], int, Worth, float] | None = None
        for place, rate in rates:
            offer = placement.offers[place]
            start_s = _start_s(free[place], task.count or offer.count)
            worth = rate.worth(seconds[offer.place.instance_type], start_s)
            score = worth.score(placement.waiting_usd_per_hour)
            if best is None or score < best[0]:
                best = score, place, rate.worth(worth.seconds), start_s
        if best is None:
            assigned[task.position] = Assigned(task=task, offer=None, reasons=reasons)
            continue
        _, place, worth, start_s = best
        made = Assigned(task=task, offer=placement.offers[place], worth=worth, start_s=start_s)
        if (times := free[place]) is not None:
            for _ in range(made.count):
                # The quota is used from Create on, not from the moment when the instances are there.
                heapq.heapreplace(times, start_s + worth.wait_s + (worth.seconds or 0.0))
        assigned[task.position] = made
    return [assigned[task.position] for task in tasks]


def _start_s(times: list[float] | None, count: int) -> float:
    """Return when ``count`` instances of a quota are free together."""
    if times is None:
        return 0.0
    return times[0] if count == 1 else heapq.nsmallest(count, times)[-1]


def _places_for(
    task: Task, placement: Cheapest, limits: Sequence[int | None]
) -> tuple[list[tuple[int, Rate]], dict[str, str]]:
    """Return the places that take a row with their rates, and why the others refuse it."""
    rates, reasons = [], {}
    for place, (offer, limit) in enumerate(zip(placement.offers, limits, strict=True)):
        count = task.count or offer.count
        why = refusal(task, offer, placement.move_data) or placement.lacks(task, offer.place.region)
        if why is None and limit is not None and limit < count:
            why = f"the quota leaves {limit} of {offer.place.instance_type}, and the job takes {count}"
        if why:
            reasons[str(offer.place)] = why
        else:
            rates.append((place, placement.rate(task, offer)))
    return rates, reasons
