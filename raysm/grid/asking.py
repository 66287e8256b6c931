"""What is known of places before anything is sent: a request and its rows flow in, prices and quotas flow out.

Each region is asked for what it tells by itself. AWS tells quotas, and has its prices in public files; an embedded
SageMaker that plays a scenario tells both, so that a plan on a laptop asks what a plan on AWS asks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from raysm.client.costs.prices import PriceTable, RegionPrices, fetch_prices, known_prices
from raysm.client.service import Service
from raysm.errors import RaysmError, ServiceError
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Place, Quota
from raysm.grid.plan import places_of
from raysm.grid.quotas import read_quotas
from raysm.grid.sending_rows import Services
from raysm.grid.task import Task
from raysm.request import Target

__all__ = ["ask_prices", "ask_quotas", "prices_of", "services_in"]


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
        if service.lists_prices:
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
            if service.lists_quotas:
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
