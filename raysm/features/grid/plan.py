"""The plan of a grid: each row's place, cost and duration, or why it is impossible.

Nothing is sent.

Rows are assigned greedily in the order in which the controller sends them: by priority, the longest
first. Each row takes the place that is then cheapest for it, including the wait for the place's
quota. A sum with an unknown cost is unknown.
"""

import heapq
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

from raysm.core.client.costs.prices import OLD_DAYS, PriceTable, prices_of
from raysm.core.client.service import Service, list_quotas
from raysm.core.protocol.names import counted
from raysm.core.protocol.service_model import knows_preferences
from raysm.core.protocol.source import source_of
from raysm.core.request import Limits, Target
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.durations import duration
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.grid.attempt import most_billed_s
from raysm.features.grid.grid_request import GridRequest, check_types
from raysm.features.grid.market import Market, Offer, Place, Quota
from raysm.features.grid.placement import (
    CostRate,
    Placement,
    Worth,
    offers_of,
    placement_of,
    why_unfit,
)
from raysm.features.grid.row import Row
from raysm.features.grid.template import Services

SHORTER_S = (6 * 3600, 3600, 1800, 600, 300, 60)
"""Time limits that a plan suggests, where the budget allows too few jobs at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    row: Row
    offer: Offer | None
    worth: Worth | None = None
    start_s: float = 0.0
    """Seconds from now until the quota of the place has room for it."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each place refuses a row that no place takes."""

    @property
    def count(self) -> int:
        return 0 if self.offer is None else self.row.count or self.offer.count

    @property
    def end_s(self) -> float | None:
        if self.worth is None or self.worth.seconds is None:
            return None
        return self.start_s + self.worth.wait_s + self.worth.seconds


def assign(
    rows: Sequence[Row], placement: Placement, market: Market | None = None
) -> list[Assigned]:
    """Return every row with its place, in the order of ``rows``; no market means no quotas."""
    quotas = {} if market is None else market.quotas
    # For each place, a heap of the times when each instance of its quota is free, in seconds from
    # now; None: no quota.
    free = [
        None if quota is None else [0.0] * (quota.limit - quota.used_by_others)
        for quota in (quotas.get(offer.place) for offer in placement.offers)
    ]
    # Most rows differ only in parameters and durations, so their common costs are computed once per
    # shape.
    shapes: dict[tuple[object, ...], tuple[list[tuple[int, CostRate]], dict[str, str]]] = {}
    types = {offer.place.instance_type: offer for offer in placement.offers}
    assigned: dict[int, Assigned] = {}
    for row in sorted(rows, key=lambda row: row.sending_order):
        key = (
            row.region,
            row.instance_types,
            row.spot,
            row.count,
            row.image,
            row.input_bytes,
        )
        if key not in shapes:
            shapes[key] = _rates_and_refusals(
                row, placement, [None if each is None else len(each) for each in free]
            )
        rates, reasons = shapes[key]
        seconds = {name: placement.seconds(row, offer) for name, offer in types.items()}
        best: tuple[tuple[int, float], int, Worth, float] | None = None
        for index, rate in rates:
            offer = placement.offers[index]
            start_s = _start_s(free[index], row.count or offer.count)
            worth = rate.worth(seconds[offer.place.instance_type], start_s)
            score = worth.score(placement.waiting_usd_per_hour)
            if best is None or score < best[0]:
                best = score, index, rate.worth(worth.seconds), start_s
        if best is None:
            assigned[row.position] = Assigned(row=row, offer=None, reasons=reasons)
            continue
        _, index, worth, start_s = best
        made = Assigned(row=row, offer=placement.offers[index], worth=worth, start_s=start_s)
        if (times := free[index]) is not None:
            for _ in range(made.count):
                # The quota is used from Create on, not only from the start of the instances.
                heapq.heapreplace(times, start_s + worth.wait_s + (worth.seconds or 0.0))
        assigned[row.position] = made
    return [assigned[row.position] for row in rows]


def _start_s(times: list[float] | None, count: int) -> float:
    if times is None:
        return 0.0
    return times[0] if count == 1 else heapq.nsmallest(count, times)[-1]


def _rates_and_refusals(
    row: Row, placement: Placement, limits: Sequence[int | None]
) -> tuple[list[tuple[int, CostRate]], dict[str, str]]:
    rates = []
    reasons = {}
    for index, (offer, limit) in enumerate(zip(placement.offers, limits, strict=True)):
        count = row.count or offer.count
        why = why_unfit(row, offer, placement.move_data)
        if why is None and limit is not None and limit < count:
            why = (
                f"the quota leaves {limit} of {offer.place.instance_type}, "
                f"and the job takes {count}"
            )
        if why:
            reasons[str(offer.place)] = why
        else:
            rates.append((index, placement.rate(row, offer)))
    return rates, reasons


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPlace:
    place: Place
    rows: int
    instances: int
    usd_per_hour: float | None
    price_version: str
    price_as_of: str
    usd: tuple[float, float] | None
    hours: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GridPlan:
    name: str
    assigned: tuple[Assigned, ...]
    places: tuple[PlannedPlace, ...]
    transfer_usd: float | None
    most_usd: float | None
    """Cost if every row ran to its time limit; None if a price is unknown."""
    notes: tuple[str, ...] = ()

    @property
    def impossible(self) -> tuple[Assigned, ...]:
        return tuple(each for each in self.assigned if each.offer is None)

    @property
    def usd(self) -> tuple[float, float] | None:
        parts = [place.usd for place in self.places]
        ranges = [part for part in parts if part is not None]
        if len(ranges) < len(parts) or self.transfer_usd is None or not parts:
            return None
        return sum(low for low, _ in ranges) + self.transfer_usd, sum(
            high for _, high in ranges
        ) + self.transfer_usd

    @property
    def hours(self) -> float | None:
        ends = [each.end_s for each in self.assigned if each.offer is not None]
        known_ends = [end for end in ends if end is not None]
        return max(known_ends) / 3600 if known_ends and len(known_ends) == len(ends) else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rows": len(self.assigned),
            "usd": None if self.usd is None else [round(usd, 4) for usd in self.usd],
            "most_usd": self.most_usd,
            "transfer_usd": self.transfer_usd,
            "hours": self.hours,
            "places": [
                {
                    **asdict(each.place),
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
            "impossible": [
                {"key": each.row.key, "reasons": dict(each.reasons)} for each in self.impossible
            ],
            "notes": list(self.notes),
        }


def regions_and_types(
    request: GridRequest, rows: Sequence[Row], own_region: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    # By default the regions of the rows' data: moving data costs money, and needs the user's
    # permission.
    regions = request.regions or tuple(
        dict.fromkeys(row.region for row in rows if row.region is not None)
    )
    if not regions and own_region is not None:
        regions = (own_region,)
    if not regions:
        raise InvalidRequest(
            "the grid has no region; give --regions us-east-1,eu-west-1 or a column region"
        )
    named = (name for row in rows for name in row.instance_types)
    types = tuple(dict.fromkeys([*request.instance_types, *named]))
    if not types:
        raise InvalidRequest(
            "the grid has no instance type; "
            "give --instance-type ml.g5.xlarge or a column instance_type"
        )
    return regions, types


def plan_grid(
    request: GridRequest,
    rows: Sequence[Row],
    table: PriceTable,
    quotas: Mapping[Place, Quota],
    *,
    today: date,
    own_region: str | None = None,
    notes: Sequence[str] = (),
) -> GridPlan:
    regions, types = regions_and_types(request, rows, own_region)
    volume_gb = request.template.volume_gb
    offers = offers_of(
        regions, types, table, count=request.count, volume_gb=volume_gb, markets=request.markets
    )
    placement = placement_of(request.rules, offers)
    assigned = assign(rows, placement, Market(quotas=quotas))
    for each in assigned:
        # An invalid row is invalid in every place, so one check is enough. Rows without a place are
        # checked, too.
        offer = each.offer or offers[0]
        request.template.job(each.row, offer.place, each.row.count or offer.count)
    limits = request.template.options.get("limits") or Limits()
    budget_usd = request.rules.max_cost
    target = request.template.target
    # Where nothing is billed, the cap of a job has no effect.
    of_job = limits.max_cost if target.is_billed else None
    if budget_usd is not None:
        notes = [*notes, *_budget_notes(request, assigned, placement, limits.max_runtime_s)]
    plan = GridPlan(
        name=request.name,
        assigned=tuple(assigned),
        places=_places(assigned, placement, table),
        transfer_usd=_sum(each.worth.transfer_usd for each in assigned if each.worth is not None),
        most_usd=_sum(
            _max_usd(each, placement, limits.max_runtime_s, of_job)
            for each in assigned
            if each.offer is not None
        ),
        notes=(
            *notes,
            *_notes(
                assigned, placement, table, today, any_type=request.rules.any_type, target=target
            ),
        ),
    )
    _check_prices(plan, budget_usd if of_job is None else of_job, target)
    # Compare the lowest cost: a grid that may turn out cheaper is not refused.
    if budget_usd is not None and plan.usd is not None and plan.usd[0] > budget_usd:
        raise InvalidRequest(
            f"the rows cost at least {plan.usd[0]:,.2f} USD, "
            f"but the budget is {budget_usd:,.2f} USD: raise it, or take fewer rows"
        )
    return plan


def _budget_notes(
    request: GridRequest, assigned: Sequence[Assigned], placement: Placement, max_runtime_s: int
) -> list[str]:
    """Say what a budget means: how many jobs may run at a time, and which limit allows more."""
    budget_usd = request.rules.max_cost
    assert budget_usd is not None, "only called with a budget"
    notes = [
        f"no job is sent with which the grid could cost more than its budget, {budget_usd:,.2f} USD"
    ]
    rows = [each for each in assigned if each.offer is not None]
    most = [_max_usd(each, placement, max_runtime_s) for each in rows]
    known = [usd for usd in most if usd]
    if not known or len(known) < len(most):
        return notes
    wanted = min(request.rules.parallel, len(rows))
    each_usd = max(known)
    count = int(budget_usd / each_usd)
    if count >= wanted:
        return notes
    longest_s = max(each.row.max_runtime_s or max_runtime_s for each in rows)
    note = (
        f"{counted(count, 'job')} at a time, because each could cost up to {each_usd:,.2f} USD "
        f"until its time limit of {duration(longest_s)}"
    )
    # The price of a second follows from the dearest row.
    usd_per_s = each_usd / most_billed_s(longest_s)
    for limit_s in SHORTER_S:
        more = min(wanted, int(budget_usd / (usd_per_s * most_billed_s(limit_s))))
        if limit_s < longest_s and more > count:
            note += f"; --max-runtime {limit_s // 60}m allows {more}"
            break
    return [*notes, note]


def _price_remedy(target: Target, region: str) -> str:
    if Service(target).connection.lists_prices:
        return "set it in the scenario's table market.usd_per_hour"
    return f"raysm prices --refresh --regions {region} fetches prices from AWS"


def _check_prices(plan: GridPlan, budget_usd: float | None, target: Target) -> None:
    if budget_usd is None:
        return
    for place in plan.places:
        if place.usd_per_hour is None:
            raise InvalidRequest(
                f"the price of {place.place} is unknown, so a budget of {budget_usd:,.2f} "
                f"USD cannot be guaranteed: {_price_remedy(target, place.place.region)}, "
                "or leave out the region or the budget"
            )


def _places(
    assigned: Sequence[Assigned], placement: Placement, table: PriceTable
) -> tuple[PlannedPlace, ...]:
    by_place: dict[Place, list[Assigned]] = {}
    for each in assigned:
        if each.offer is not None:
            by_place.setdefault(each.offer.place, []).append(each)
    planned = [_planned_place(place, rows, placement, table) for place, rows in by_place.items()]
    return tuple(sorted(planned, key=lambda each: (-each.rows, each.place)))


def _planned_place(
    place: Place, rows: Sequence[Assigned], placement: Placement, table: PriceTable
) -> PlannedPlace:
    price = table.price(place.instance_type, place.region)
    ends = [each.end_s for each in rows]
    # The range comes from the billed part of spot capacity, and from the choice of types.
    low, high = placement.estimates.billed_range(place)
    costs = [_costs(each, placement) for each in rows]
    ranges = [cost for cost in costs if cost is not None]
    is_known = len(ranges) == len(costs)
    return PlannedPlace(
        place=place,
        rows=len(rows),
        instances=sum(each.count for each in rows),
        usd_per_hour=None if price is None else price.usd_per_hour,
        price_version="" if price is None else price.version,
        price_as_of="" if price is None else price.as_of,
        usd=(sum(usd for usd, _ in ranges) * low, sum(usd for _, usd in ranges) * high)
        if is_known
        else None,
        hours=None if None in ends else max(end for end in ends if end is not None) / 3600,
    )


def _costs(each: Assigned, placement: Placement) -> tuple[float, float] | None:
    """Return a row's cost on the cheapest and the most expensive type it may get, or None.

    None means that it is unknown.
    """
    assert each.offer is not None, "it has a place"
    costs = []
    for offer in placement.companions(each.row, each.offer):
        seconds = placement.seconds(each.row, offer)
        if offer.usd_per_hour is None or seconds is None:
            return None
        costs.append(offer.usd_per_hour * each.count * seconds / 3600)
    return min(costs), max(costs)


def _max_usd(
    each: Assigned, placement: Placement, max_runtime_s: int, max_cost: float | None = None
) -> float | None:
    assert each.offer is not None, "it has a place"
    first, *others = placement.companions(each.row, each.offer)
    usd_per_hour = replace(first, alternatives=tuple(others)).most_usd_per_hour
    if usd_per_hour is None:
        return None
    seconds = most_billed_s(each.row.max_runtime_s or max_runtime_s)
    usd = usd_per_hour * each.count * seconds / 3600
    return usd if max_cost is None else min(usd, max_cost)


def _sum(parts: Iterable[float | None]) -> float | None:
    every = list(parts)
    amounts = [part for part in every if part is not None]
    # fsum, since the rounding error of sum() over 10,000 rows is visible.
    return math.fsum(amounts) if len(amounts) == len(every) else None


def _notes(
    assigned: Sequence[Assigned],
    placement: Placement,
    table: PriceTable,
    today: date,
    *,
    any_type: bool,
    target: Target,
) -> list[str]:
    notes = []
    used = {each.offer.place for each in assigned if each.offer is not None}
    # The embedded SageMaker's own instances cost nothing.
    offers = [offer for offer in placement.offers if offer.place.instance_type != LOCAL_TYPE]
    unpriced = sorted({str(offer.place) for offer in offers if offer.usd_per_hour is None})
    if unpriced:
        shown = ", ".join(unpriced[:4]) + (
            f" and {len(unpriced) - 4} more" if len(unpriced) > 4 else ""
        )
        notes.append(f"the price of {shown} is unknown; {_price_remedy(target, '…')}")
    old: set[str] = set()
    for place in used:
        price = table.price(place.instance_type, place.region)
        age = None if price is None else price.age_days(today)
        if price is not None and age is not None and age > OLD_DAYS:
            version = f"version {price.version}"
            old.add(
                f"the prices of {place.region} are {age} days old "
                f"({version}): raysm prices --refresh"
            )
    notes += sorted(old)
    if offers and any(each.worth is not None and each.worth.seconds is None for each in assigned):
        notes.append(
            "some rows have no expected_s: their cost is unknown until a few of them are done"
        )
    if any(place.spot for place in used):
        notes.append(
            "spot capacity costs between 10 % and 100 % of the on-demand price: "
            "SageMaker publishes no spot prices"
        )
    if any_type and not knows_preferences():
        notes.append(
            "the installed botocore does not know InstancePreferences: "
            "instance types are tried one after the other"
        )
    return notes


NAME = re.compile(r"(?P<type>ml\.\S+) for (?P<spot>spot )?training job usage")


def quota_place(name: str, region: str) -> Place | None:
    match = NAME.fullmatch(name)
    return (
        None
        if match is None
        else Place(region=region, instance_type=match["type"], spot=bool(match["spot"]))
    )


def read_quotas(
    service: Service,
    instance_types: Collection[str] | None = None,
    markets: Collection[bool] = (False, True),
) -> Mapping[Place, Quota]:
    wanted = None
    if instance_types is not None:
        wanted = {
            Place(region=service.region, instance_type=t, spot=spot)
            for t in instance_types
            for spot in markets
        }
    quotas: dict[Place, Quota] = {}
    for listed in list_quotas(service):
        place = quota_place(listed["QuotaName"], service.region)
        if place is not None and (wanted is None or place in wanted):
            # The account's own quota is listed first.
            quotas.setdefault(place, Quota(limit=int(listed["Value"]), source="api"))
        # Stop early: there are thousands, a hundred to a page, and a grid needs a few.
        if quotas.keys() == wanted:
            break
    return quotas


@dataclass(frozen=True, kw_only=True, slots=True)
class GridFacts:
    prices: PriceTable
    quotas: Mapping[Place, Quota]
    own_region: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyGrid:
    request: GridRequest
    """The request, with a target that reaches all of the grid's regions."""
    rows: list[Row]
    facts: GridFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedGrid(ReadyGrid):
    plan: GridPlan


def make_plan(request: GridRequest, services: Services = Service) -> PlannedGrid:
    rows = request.read_rows()
    # Refuse a script that cannot be packaged before a grid of this name exists, which would take no
    # other script. A pickled workload has no script; a script with a column in its path differs by
    # row.
    script = request.template.workload.entry_script if request.template.package is None else None
    if script is not None and not any(
        "{" in (path or "") for path in (script.script, script.source_dir)
    ):
        source_of(script)
    request = reaching(request, rows, services)
    region = own_region(request.template.target, services)
    regions, types = regions_and_types(request, rows, region)
    check_types(types)
    in_regions = [services(request.template.target.in_region(name)) for name in regions]
    quotas, notes = ask_quotas(in_regions, types, request.markets)
    facts = GridFacts(prices=prices_of(in_regions), quotas=quotas, own_region=region, notes=notes)
    today = datetime.now(UTC).date()
    plan = plan_grid(
        request, rows, facts.prices, quotas, today=today, own_region=region, notes=notes
    )
    return PlannedGrid(request=request, rows=rows, facts=facts, plan=plan)


def ask_quotas(
    services: Iterable[Service], types: Collection[str], markets: Collection[bool]
) -> tuple[Mapping[Place, Quota], tuple[str, ...]]:
    """Return the quotas that can be read, and a note if they cannot."""
    quotas: dict[Place, Quota] = {}
    try:
        for service in services:
            if service.connection.lists_quotas:
                quotas |= read_quotas(service, types, markets)
    except RaysmError as error:
        # A plan without quotas is better than none, but must not look like one with quotas.
        return {}, (f"the quotas are unknown, and the plan assumes none: {error}",)
    return quotas, ()


def reaching(request: GridRequest, rows: Sequence[Row], services: Services) -> GridRequest:
    """Return the grid with a target that names all of its regions, if it has such a field."""
    target = request.template.target
    if not hasattr(target, "regions"):
        return request
    own = own_region(target, services)
    # The target's own region first, even if no row runs there: its bucket holds the state of a grid
    # that Batch runs.
    regions = dict.fromkeys((*([own] if own else ()), *regions_and_types(request, rows, own)[0]))
    changes: dict[str, Any] = {"regions": tuple(regions)}
    return replace(request, template=replace(request.template, target=replace(target, **changes)))


def own_region(target: Target, services: Services) -> str | None:
    try:
        return services(target).region
    except RaysmError:
        # Not needed if all rows name their regions.
        return None
