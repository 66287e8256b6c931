"""The command ``raysm quotas``: the account's quotas of instances, and what grids use of them.

It counts the grids of this machine.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import say
from raysm.core.client.costs.prices import Price, PriceTable, prices_of
from raysm.core.client.service import services_in
from raysm.core.request import AWS
from raysm.errors import InvalidRequest
from raysm.features.grid.capacity import market_in_use
from raysm.features.grid.local_grids import grid_names, opened
from raysm.features.grid.market import Place, Quota
from raysm.features.grid.plan import read_quotas


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitting:
    place: Place
    limit: int
    in_use: int
    """Instances in use by open jobs of this machine's grids; the use by others of the account is
    unknown."""
    price: Price | None

    def as_dict(self) -> dict[str, Any]:
        price = (
            dict.fromkeys(("usd_per_hour", "as_of", "version"))
            if self.price is None
            else self.price.as_dict()
        )
        return {**asdict(self.place), "limit": self.limit, "in_use_by_grids": self.in_use, **price}


def run(arguments: Arguments, console: Console) -> None:
    services = services_in(read_settings(arguments).target(role=NO_ROLE), arguments.regions)
    quotas: dict[Place, Quota] = {}
    for service in services:
        quotas |= read_quotas(service, arguments.type or None)
    chosen = fitting(quotas, in_use_here(), prices_of(services), is_asked=bool(arguments.type))
    if not chosen:
        what = ", ".join(arguments.type) or "any type"
        where = ", ".join(arguments.regions) or "this region"
        remedy = "check the names"
        if services[0].target.kind != AWS.kind:
            where = "the embedded SageMaker"
            remedy = "add --on aws for those of your account"
        raise InvalidRequest(
            f"Service Quotas lists no training instances of {what} above 0 in {where}",
            remedy=remedy,
        )
    if arguments.json:
        print(json.dumps([each.as_dict() for each in chosen], indent=1))
        return
    is_here = any(service.connection.lists_prices for service in services)
    unknown = (
        "set it in the scenario's table market.usd_per_hour"
        if is_here
        else "raysm prices --refresh"
    )
    for each in chosen:
        market = "spot" if each.place.spot else "on demand"
        used = f", {each.in_use:,} in use by grids of this machine" if each.in_use else ""
        price = f"  price unknown: {unknown}" if each.price is None else each.price.line()
        place = f"{each.place.region:<16} {each.place.instance_type:<18} {market:<9}"
        say(f"{place} {each.limit:>6,} instances{used} {price}", console)


def in_use_here() -> Counter[Place]:
    used: Counter[Place] = Counter()
    for name in grid_names():
        with opened(name) as store:
            used += market_in_use(store)
    return used


def fitting(
    quotas: Mapping[Place, Quota],
    in_use: Mapping[Place, int],
    prices: PriceTable,
    *,
    is_asked: bool = False,
) -> list[Fitting]:
    """Join quotas, use and prices, sorted by region, type and market.

    Quotas of 0 are included only if the user named the types.
    """
    return [
        Fitting(
            place=place,
            limit=quota.limit,
            in_use=in_use.get(place, 0),
            price=prices.price(place.instance_type, place.region),
        )
        for place, quota in sorted(quotas.items(), key=lambda item: item[0])
        if is_asked or quota.limit
    ]
