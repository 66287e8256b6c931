"""Read the rows, prices and quotas of a grid, and plan it before it starts."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from raysm.client.account.quotas import listed_quotas
from raysm.client.costs.prices import PriceTable, RegionPrices, fetch_prices, known_prices
from raysm.client.service import Service
from raysm.contract.source import source_of
from raysm.errors import RaysmError, ServiceError
from raysm.grid.filling import Services
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Place, Quota
from raysm.grid.plan import GridPlan, places_of, plan_grid
from raysm.grid.task import Task
from raysm.request import Target

NAME = re.compile(r"(?P<type>ml\.\S+) for (?P<spot>spot )?training job usage")
"""Name of an instance quota: ``ml.g5.xlarge for spot training job usage``."""


def quota_place(name: str, region: str) -> Place | None:
    match = NAME.fullmatch(name)
    return None if match is None else Place(region=region, instance_type=match["type"], spot=bool(match["spot"]))


def read_quotas(
    service: Service, instance_types: Collection[str] | None = None, markets: Collection[bool] = (False, True)
) -> Mapping[Place, Quota]:
    """Return the quotas of some types, or all, in the service's region."""
    wanted = None
    if instance_types is not None:
        wanted = {Place(region=service.region, instance_type=t, spot=spot) for t in instance_types for spot in markets}
    quotas: dict[Place, Quota] = {}
    for listed in listed_quotas(service):
        place = quota_place(listed["QuotaName"], service.region)
        if place is not None and (wanted is None or place in wanted):
            # The account's own quota is listed first.
            quotas.setdefault(place, Quota(limit=int(listed["Value"]), source="api"))
        # Stop early: there are thousands, a hundred to a page, and a grid needs a few.
        if quotas.keys() == wanted:
            break
    return quotas


def prices_of(services: Iterable[Service]) -> PriceTable:
    """Return the prices that these regions list themselves, else the known prices."""
    listed: list[RegionPrices] = []
    for service in services:
        if service.connection.lists_prices:
            try:
                listed.append(fetch_prices(service))
            except ServiceError as error:
                # An emulated region may have no prices.
                if error.is_transient or error.code:
                    raise
    # Not together with known prices: AWS's price is not that of an emulated region, and the later date would win.
    return PriceTable.of(listed) if listed else known_prices()


def services_in(target: Target, regions: Sequence[str]) -> list[Service]:
    if not regions:
        return [Service(target)]
    target = target.reaching(tuple(regions))
    return [Service(target.in_region(region)) for region in regions]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Prices and quotas when a grid starts."""

    prices: PriceTable
    quotas: Mapping[Place, Quota]
    own_region: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A grid that is ready to begin."""

    request: GridRequest
    """The request, with a target that reaches all of the grid's regions."""
    tasks: list[Task]
    facts: Known
    plan: GridPlan


def planned(request: GridRequest, services: Services = Service) -> Planned:
    """Read the rows of a grid, and on AWS the quotas, and plan it."""
    tasks = request.tasks()
    # Refuse a script that cannot be packaged before a grid of this name exists, which would take no other script. A
    # pickled workload has no script; a script with a column in its path differs by row.
    script = request.template.workload.entry_script if request.template.package is None else None
    if script is not None and not any("{" in (path or "") for path in (script.script, script.source_dir)):
        source_of(script)
    request = reaching(request, tasks, services)
    region = own_region(request.template.target, services)
    regions, types = places_of(request, tasks, region)
    in_regions = [services(request.template.target.in_region(name)) for name in regions]
    quotas, notes = ask_quotas(in_regions, types, request.markets)
    facts = Known(prices=prices_of(in_regions), quotas=quotas, own_region=region, notes=notes)
    today = datetime.now(UTC).date()
    plan = plan_grid(request, tasks, facts.prices, quotas, today=today, own_region=region, notes=notes)
    return Planned(request=request, tasks=tasks, facts=facts, plan=plan)


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


def reaching(request: GridRequest, tasks: Sequence[Task], services: Services) -> GridRequest:
    """Return the same grid with a target that names all of its regions, if the target has such a field."""
    target = request.template.target
    if not hasattr(target, "regions"):
        return request
    own = own_region(target, services)
    # The target's own region first, even if no row runs there: its bucket holds the state of a grid that Batch runs.
    regions = dict.fromkeys((*([own] if own else ()), *places_of(request, tasks, own)[0]))
    changes: dict[str, Any] = {"regions": tuple(regions)}
    return replace(request, template=replace(request.template, target=replace(target, **changes)))


def own_region(target: Target, services: Services) -> str | None:
    """Return the region that a target names or finds, or None."""
    try:
        return services(target).region
    except RaysmError:
        # Not needed if all rows name their regions.
        return None
