"""``raysm quotas``: how many instances the account may have, by place, what grids of here use of them, and prices.

What flows in is a parsed command line, what flows out are lines or JSON. What is 0, as most quotas of GPUs are, is left
out unless its type is asked for.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.client.costs.prices import Price, PriceTable
from raysm.errors import InvalidRequest
from raysm.grid.capacity import market_in_use
from raysm.grid.local_grids import grid_names, opened
from raysm.grid.place import Place, Quota
from raysm.grid.planning import prices_of, read_quotas, services_in

__all__ = ["Fitting", "fitting", "in_use_here", "run"]

BOTH = (False, True)
"""On demand, and spot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitting:
    """What fits into one place."""

    place: Place
    """Region, type and market."""
    limit: int
    """Instances that the account may have there."""
    in_use: int
    """Of them, by the open jobs of this machine's grids; what others of the account use, nobody tells."""
    price: Price | None
    """Of an hour of one instance; None is unknown."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "region": self.place.region,
            "instance_type": self.place.instance_type,
            "spot": self.place.spot,
            "limit": self.limit,
            "in_use_by_grids": self.in_use,
            "usd_per_hour": None if self.price is None else self.price.usd_per_hour,
            "as_of": None if self.price is None else self.price.as_of,
            "version": None if self.price is None else self.price.version,
        }


def run(arguments: Arguments, console: Console) -> None:
    """Print the quotas of some regions.

    Raises:
        InvalidRequest: Nothing is listed of what is asked for.
        ServiceError: They cannot be read.
    """
    target = read_settings(arguments).target(role=NO_ROLE)
    quotas: dict[Place, Quota] = {}
    services = services_in(target, arguments.regions)
    for service in services:
        quotas |= read_quotas(service, arguments.type or None)
    chosen = fitting(quotas, in_use_here(), prices_of(services), is_asked=bool(arguments.type))
    if not chosen:
        what = ", ".join(arguments.type) or "any type"
        where = ", ".join(arguments.regions) or "this region"
        raise InvalidRequest(
            f"Service Quotas lists no training instances of {what} above 0 in {where}; check the names"
        )
    if arguments.json:
        print(json.dumps([each.as_dict() for each in chosen], indent=1))
        return
    for line in _lines(chosen):
        console.print(Text(line), soft_wrap=True)


def in_use_here() -> Counter[Place]:
    """Return the instances that the open jobs of all grids of this machine have, by place."""
    used: Counter[Place] = Counter()
    for name in grid_names():
        with opened(name) as store:
            used += market_in_use(store)
    return used


def fitting(
    quotas: Mapping[Place, Quota], in_use: Mapping[Place, int], prices: PriceTable, *, is_asked: bool = False
) -> list[Fitting]:
    """Return what fits, by region, type and market.

    Args:
        quotas: As they were read.
        in_use: By the grids of this machine.
        prices: Those at hand.
        is_asked: Whether the types were named: then a quota of 0 is an answer, too.
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


def _lines(chosen: Iterable[Fitting]) -> Iterator[str]:
    for each in chosen:
        market = "spot" if each.place.spot else "on demand"
        used = f", {each.in_use:,} in use by grids of here" if each.in_use else ""
        price = "price unknown: raysm prices --refresh"
        if each.price is not None:
            price = f"{each.price.usd_per_hour:,.4f} USD/h as of {each.price.as_of}, version {each.price.version}"
        place = f"{each.place.region:<16} {each.place.instance_type:<18} {market:<9}"
        yield f"{place} {each.limit:>6,} instances{used}; {price}"
