"""What a grid would do: places, dollars, hours, and what is impossible and why. Nothing is sent.

What flows in is a request, with its rows, prices and quotas; what flows out is a value that can be printed, compared
and tested. A dollar that is not known is said to be unknown, and never left out of a sum without a word.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from raysm.client.costs.prices import OLD_DAYS, PriceTable
from raysm.contract.service_model import knows_preferences
from raysm.errors import InvalidRequest
from raysm.grid.assignment import Assigned, assign
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Market, Place, Quota
from raysm.grid.placement import Cheapest, offers_of, placement_of
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from raysm.request import Limits
from raysm.request.cluster import LOCAL_TYPE

__all__ = ["GridPlan", "PlannedPlace", "places_of", "plan_grid"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPlace:
    """One place, with the rows that would run there."""

    place: Place
    """Region, type and market."""
    rows: int
    """How many."""
    instances: int
    """Of all their jobs."""
    usd_per_hour: float | None
    """Of one instance on demand; None is unknown."""
    price_version: str
    """Of the list that says so."""
    price_as_of: str
    """When it was so."""
    usd: tuple[float, float] | None
    """What the rows cost at best and at worst; None where a price or a time is not known."""
    hours: float | None
    """From now until the last of them has ended; None where a time is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridPlan:
    """All rows, each in its place."""

    name: str
    """Of the grid."""
    assigned: tuple[Assigned, ...]
    """In the order of the rows."""
    places: tuple[PlannedPlace, ...]
    """Those that rows run in, the most rows first."""
    transfer_usd: float | None
    """For moving data between regions; None where size or rate is not known."""
    most_usd: float | None
    """If every row ran to its time limit; None where a price is not known."""
    notes: tuple[str, ...] = ()
    """What a person should know before it is begun."""

    @property
    def impossible(self) -> tuple[Assigned, ...]:
        """The rows that can run nowhere."""
        return tuple(each for each in self.assigned if each.offer is None)

    @property
    def usd(self) -> tuple[float, float] | None:
        """What it costs at best and at worst, data included; None where something of it is not known."""
        parts = [place.usd for place in self.places]
        ranges = [part for part in parts if part is not None]
        # A sum of what is known alone would read as if it were all.
        if len(ranges) < len(parts) or self.transfer_usd is None or not parts:
            return None
        return sum(low for low, _ in ranges) + self.transfer_usd, sum(high for _, high in ranges) + self.transfer_usd

    @property
    def hours(self) -> float | None:
        """From now until the last row has ended; None where a time is not known."""
        ends = [each.end_s for each in self.assigned if each.offer is not None]
        known_ends = [end for end in ends if end is not None]
        return max(known_ends) / 3600 if known_ends and len(known_ends) == len(ends) else None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values; what is not known is null."""
        return {
            "name": self.name,
            "rows": len(self.assigned),
            "usd": None if self.usd is None else [round(usd, 4) for usd in self.usd],
            "most_usd": self.most_usd,
            "transfer_usd": self.transfer_usd,
            "hours": self.hours,
            "places": [
                {
                    "region": each.place.region,
                    "instance_type": each.place.instance_type,
                    "spot": each.place.spot,
                    "rows": each.rows,
                    "instances": each.instances,
                    "usd_per_hour": each.usd_per_hour,
                    "price_version": each.price_version or None,
                    "price_as_of": each.price_as_of or None,
                    "usd": None if each.usd is None else list(each.usd),
                    "hours": each.hours,
                }
                for each in self.places
            ],
            "impossible": [{"key": each.task.key, "reasons": dict(each.reasons)} for each in self.impossible],
            "notes": list(self.notes),
        }


def places_of(
    request: GridRequest, tasks: Sequence[Task], own_region: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the regions and the instance types that a grid may use, each the best first.

    Args:
        request: The grid.
        tasks: Its rows, which may name both.
        own_region: The target's; None where it names none.

    Raises:
        InvalidRequest: Nobody names a region, or a type.
    """
    # Else where the rows' data lie: to move them costs, and is allowed only where the user says so.
    regions = request.regions or tuple(dict.fromkeys(task.region for task in tasks if task.region is not None))
    # The last resort: rows that name no region have their data anywhere, or none.
    if not regions and own_region is not None:
        regions = (own_region,)
    if not regions:
        raise InvalidRequest("the grid has no region; give --regions us-east-1,eu-west-1 or a column region")
    named = (name for task in tasks for name in task.instance_types)
    types = tuple(dict.fromkeys([*request.instance_types, *named]))
    if not types:
        raise InvalidRequest(
            "the grid has no instance type; give --instance-type ml.g5.xlarge or a column instance_type"
        )
    return regions, types


def plan_grid(
    request: GridRequest,
    tasks: Sequence[Task],
    table: PriceTable,
    quotas: Mapping[Place, Quota],
    *,
    today: date,
    own_region: str | None = None,
    notes: Sequence[str] = (),
) -> GridPlan:
    """Return the plan of a grid.

    Args:
        request: The grid.
        tasks: Its rows.
        table: Prices.
        quotas: As far as they are known.
        today: By which prices are old or not.
        own_region: The target's; None where it names none.
        notes: What is to be said beside.

    Raises:
        InvalidRequest: No place is named, a row cannot be made a job, or there is a budget and a price is not known.
    """
    regions, types = places_of(request, tasks, own_region)
    offers = offers_of(regions, types, table, count=request.count, markets=request.markets)
    placement = placement_of(request.rules, offers)
    assigned = assign(tasks, placement, Market(quotas=quotas))
    for each in assigned:
        # By its first place: what can be wrong with a row is so in any of them.
        # Also of a row that no place takes: what is wrong with it is said beside.
        offer = each.offer or offers[0]
        request.template.job(each.task, offer.place, each.task.count or offer.count)
    limits = request.template.options.get("limits") or Limits()
    plan = GridPlan(
        name=request.name,
        assigned=tuple(assigned),
        places=_places(assigned, placement, table),
        transfer_usd=_sum(each.worth.transfer_usd for each in assigned if each.worth is not None),
        most_usd=_sum(_most(each, placement, limits.max_runtime_s) for each in assigned if each.offer is not None),
        notes=(
            *notes,
            *_notes(assigned, placement, table, today),
            *_type_notes(request.rules),
        ),
    )
    _check_budget(plan, request.rules.budget_usd)
    return plan


def _type_notes(rules: Rules) -> list[str]:
    if not rules.any_type or knows_preferences():
        return []
    return ["this botocore does not know InstancePreferences: instance types are tried one after the other"]


def _check_budget(plan: GridPlan, budget_usd: float | None) -> None:
    if budget_usd is None:
        return
    for place in plan.places:
        if place.usd_per_hour is None:
            raise InvalidRequest(
                f"the price of {place.place} is unknown, so a budget of {budget_usd:,.2f} USD cannot be kept: "
                f"raysm prices --refresh --regions {place.place.region}, or leave out that region, or the budget"
            )
    # By the least that it can cost: what may yet turn out cheaper is not refused.
    if plan.usd is not None and plan.usd[0] > budget_usd:
        raise InvalidRequest(
            f"the rows cost at least {plan.usd[0]:,.2f} USD, but the budget is {budget_usd:,.2f} USD: raise it, or "
            "take fewer rows"
        )


def _places(assigned: Sequence[Assigned], placement: Cheapest, table: PriceTable) -> tuple[PlannedPlace, ...]:
    by_place: dict[Place, list[Assigned]] = {}
    for each in assigned:
        if each.offer is not None:
            by_place.setdefault(each.offer.place, []).append(each)
    planned = [_planned(place, rows, placement, table) for place, rows in by_place.items()]
    # The place itself last, so that a plan reads the same each time.
    return tuple(sorted(planned, key=lambda each: (-each.rows, each.place)))


def _planned(place: Place, rows: Sequence[Assigned], placement: Cheapest, table: PriceTable) -> PlannedPlace:
    price = table.price(place.instance_type, place.region)
    ends = [each.end_s for each in rows]
    # What share of the time spot capacity was billed for; of on-demand capacity both are 1.
    low, high = placement.estimates.billed_range(place)
    usd: tuple[float, float] | None = None
    costs = [_costs(each, placement) for each in rows]
    ranges = [cost for cost in costs if cost is not None]
    if len(ranges) == len(costs):
        # Times are the user's own word: the range is what spot capacity is billed for, and a choice of types.
        usd = sum(least for least, _ in ranges) * low, sum(most for _, most in ranges) * high
    return PlannedPlace(
        place=place,
        rows=len(rows),
        instances=sum(each.count for each in rows),
        usd_per_hour=None if price is None else price.usd_per_hour,
        price_version="" if price is None else price.version,
        price_as_of="" if price is None else price.as_of,
        usd=usd,
        hours=None if None in ends else max(end for end in ends if end is not None) / 3600,
    )


def _costs(each: Assigned, placement: Cheapest) -> tuple[float, float] | None:
    """Return what a row costs on the cheapest and on the dearest of the types that it may get; None is unknown."""
    assert each.offer is not None, "it has a place"
    costs = []
    for offer in placement.companions(each.task, each.offer):
        seconds = placement.seconds(each.task, offer)
        if offer.usd_per_hour is None or seconds is None:
            return None
        costs.append(offer.usd_per_hour * each.count * seconds / 3600)
    return min(costs), max(costs)


def _most(each: Assigned, placement: Cheapest, max_runtime_s: int) -> float | None:
    """Return what a row costs if it runs to its limit."""
    if each.offer is None:
        return None
    first, *others = placement.companions(each.task, each.offer)
    usd_per_hour = replace(first, alternatives=tuple(others)).most_usd_per_hour
    if usd_per_hour is None:
        return None
    # The service ends it then: more it cannot cost, whatever its program does.
    return usd_per_hour * each.count * (each.task.max_runtime_s or max_runtime_s) / 3600


def _sum(parts: Any) -> float | None:
    every = list(parts)
    amounts = [part for part in every if part is not None]
    # Not sum(): of 10,000 cents its error would show.
    return math.fsum(amounts) if len(amounts) == len(every) else None


def _notes(assigned: Sequence[Assigned], placement: Cheapest, table: PriceTable, today: date) -> list[str]:
    notes = []
    used = {each.offer.place for each in assigned if each.offer is not None}
    # Instances of the embedded SageMaker that have no type cost nothing.
    offers = [offer for offer in placement.offers if offer.place.instance_type != LOCAL_TYPE]
    unpriced = sorted({str(offer.place) for offer in offers if offer.usd_per_hour is None})
    if unpriced:
        shown = ", ".join(unpriced[:4]) + (f" and {len(unpriced) - 4} more" if len(unpriced) > 4 else "")
        notes.append(f"the price of {shown} is unknown; raysm prices --refresh --regions … fetches prices from AWS")
    old: set[str] = set()
    for place in used:
        price = table.price(place.instance_type, place.region)
        age = None if price is None else price.age_days(today)
        if price is not None and age is not None and age > OLD_DAYS:
            version = f"version {price.version}"
            old.add(f"the prices of {place.region} are {age} days old ({version}): raysm prices --refresh")
    notes += sorted(old)
    if offers and any(each.worth is not None and each.worth.seconds is None for each in assigned):
        notes.append("some rows have no expected_s: their cost is unknown until a few of them are done")
    if any(place.spot for place in used):
        notes.append("of spot capacity the range is from a saving of 90 % to none: SageMaker publishes no price of it")
    return notes
