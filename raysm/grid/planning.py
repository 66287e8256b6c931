"""A grid before it begins: its rows, prices and quotas as far as they are known, and the plan."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from raysm.client.account.quotas import listed_quotas
from raysm.client.costs.prices import PriceTable, RegionPrices, fetch_prices, known_prices
from raysm.client.service import Service
from raysm.contract.source import source_of
from raysm.errors import RaysmError, ServiceError
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Place, Quota
from raysm.grid.plan import GridPlan, places_of, plan_grid
from raysm.grid.sending_rows import Services
from raysm.grid.task import Task
from raysm.request import Target

__all__ = [
    "Known",
    "Planned",
    "all_quotas",
    "ask_prices",
    "ask_quotas",
    "own_region",
    "planned",
    "prices_of",
    "quota_place",
    "reaching",
    "read_quotas",
    "services_in",
]

NAME = re.compile(r"(?P<type>ml\.\S+) for (?P<spot>spot )?training job usage")
"""Of a quota of instances: ``ml.g5.xlarge for spot training job usage``."""


def all_quotas(service: Service) -> Mapping[Place, Quota]:
    """Return every quota of instances for training in the service's region.

    Raises:
        ServiceError: They cannot be read.
    """
    quotas: dict[Place, Quota] = {}
    for listed in listed_quotas(service):
        place = quota_place(listed["QuotaName"], service.region)
        if place is not None:
            # The account's own came first.
            quotas.setdefault(place, Quota(limit=int(listed["Value"]), source="api"))
    return quotas


def read_quotas(service: Service, instance_types: Collection[str], markets: Collection[bool]) -> Mapping[Place, Quota]:
    """Return the quotas of some types in the service's region, as far as they are listed.

    Args:
        service: Of one region.
        instance_types: Which.
        markets: Whether those of spare capacity, on demand, or both.

    Raises:
        ServiceError: They cannot be read.
    """
    places = {
        Place(region=service.region, instance_type=name, spot=spot) for name in instance_types for spot in markets
    }
    quotas: dict[Place, Quota] = {}
    for listed in listed_quotas(service):
        place = quota_place(listed["QuotaName"], service.region)
        if place in places and place not in quotas:
            quotas[place] = Quota(limit=int(listed["Value"]), source="api")
        # There are thousands, a hundred to a page, of which a grid needs a few.
        if quotas.keys() == places:
            break
    return quotas


def quota_place(name: str, region: str) -> Place | None:
    """Return the place that a quota of this name limits; None where it is of something else."""
    match = NAME.fullmatch(name)
    return None if match is None else Place(region=region, instance_type=match["type"], spot=bool(match["spot"]))


def ask_prices(request: GridRequest, tasks: Sequence[Task], own_region: str | None, services: Services) -> PriceTable:
    """Return the prices that are at hand, with those that the regions themselves tell.

    Raises:
        ServiceError: A region that has prices of its own does not tell them.
    """
    return prices_of(_services_of(request, tasks, own_region, services))


def prices_of(services: Iterable[Service]) -> PriceTable:
    """Return the prices that hold in some regions: those that are at hand, or that the regions themselves tell.

    Raises:
        ServiceError: A region that has prices of its own does not tell them.
    """
    listed: list[RegionPrices] = []
    for service in services:
        if service.connection.lists_prices:
            listed += _listed(service)
    if not listed:
        return known_prices()
    # Alone: AWS's price of a type says nothing of a region that is played, and the later date would win.
    return PriceTable.of(listed)


def services_in(target: Target, regions: Sequence[str]) -> list[Service]:
    """Return a target as it is in each of some regions; without any, in its own."""
    if not regions:
        return [Service(target)]
    target = target.reaching(tuple(regions))
    return [Service(target.in_region(region)) for region in regions]


def _listed(service: Service) -> list[RegionPrices]:
    try:
        return [fetch_prices(service)]
    except ServiceError as error:
        # A scenario need not have prices of every region; one that cannot be reached is another matter.
        if error.is_transient or error.code:
            raise
        return []


def ask_quotas(
    request: GridRequest, tasks: Sequence[Task], own_region: str | None, services: Services
) -> tuple[Mapping[Place, Quota], tuple[str, ...]]:
    """Return the quotas that can be read, and what is to be said of those that cannot."""
    quotas: dict[Place, Quota] = {}
    _, types = places_of(request, tasks, own_region)
    try:
        for service in _services_of(request, tasks, own_region, services):
            if service.connection.lists_quotas:
                quotas |= read_quotas(service, types, request.markets)
    except RaysmError as error:
        # A plan without them is still worth more than none; but it must not look like one with them.
        return {}, (f"the quotas are not known, and count as none: {error}",)
    return quotas, ()


def _services_of(
    request: GridRequest, tasks: Sequence[Task], own_region: str | None, services: Services
) -> Iterator[Service]:
    for region in places_of(request, tasks, own_region)[0]:
        yield services(request.template.target.in_region(region))


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of places when a grid begins."""

    prices: PriceTable
    """By region and type."""
    quotas: Mapping[Place, Quota]
    """As far as they could be read."""
    own_region: str | None = None
    """The target's."""
    notes: tuple[str, ...] = ()
    """What is to be said of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A grid that is ready to begin."""

    request: GridRequest
    """What is asked for, of a target that reaches all of its regions."""
    tasks: list[Task]
    """Its rows, read once."""
    facts: Known
    """Prices and quotas."""
    plan: GridPlan
    """What it would do."""


def planned(request: GridRequest, services: Services = Service) -> Planned:
    """Return a grid with its rows and its plan; the rows are read, and on AWS the quotas are asked for.

    Args:
        request: What is asked for.
        services: How a target is reached.

    Raises:
        InvalidRequest: What is asked for cannot be.
    """
    tasks = request.tasks()
    _check_script(request)
    request = reaching(request, tasks, services)
    facts = _known(request, tasks, services)
    plan = plan_grid(
        request,
        tasks,
        facts.prices,
        facts.quotas,
        today=datetime.now(UTC).date(),
        own_region=facts.own_region,
        notes=facts.notes,
    )
    return Planned(request=request, tasks=tasks, facts=facts, plan=plan)


def _check_script(request: GridRequest) -> None:
    """Refuse a script that cannot travel, as each row's job would be refused later.

    By then there would be a grid of that name, which takes no other script.
    """
    # What was pickled has no script, and which one a column names each row says.
    script = request.template.workload.entry_script if request.template.package is None else None
    if script is not None and not any("{" in (path or "") for path in (script.script, script.source_dir)):
        source_of(script)


def _known(request: GridRequest, tasks: Sequence[Task], services: Services) -> Known:
    region = own_region(request.template.target, services)
    quotas, notes = ask_quotas(request, tasks, region, services)
    prices = ask_prices(request, tasks, region, services)
    return Known(prices=prices, quotas=quotas, own_region=region, notes=notes)


def reaching(request: GridRequest, tasks: Sequence[Task], services: Services) -> GridRequest:
    """Return the same grid with a target that plays all of its regions, where a target has to be told which."""
    target = request.template.target
    if not hasattr(target, "regions"):
        return request
    own = own_region(target, services)
    # Its own first, though no row may run there: in its bucket lies what is shared of the grid, which has to be found,
    # and to stay there, whatever regions the grid is given today.
    regions = dict.fromkeys((*([own] if own else ()), *places_of(request, tasks, own)[0]))
    changes: dict[str, Any] = {"regions": tuple(regions)}
    return replace(request, template=replace(request.template, target=replace(target, **changes)))


def own_region(target: Target, services: Services) -> str | None:
    """Return the region that a target means by itself; None where it means none."""
    try:
        return services(target).region
    except RaysmError:
        # A plan of rows that all name their regions needs none.
        return None
