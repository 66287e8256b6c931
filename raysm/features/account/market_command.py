"""The commands ``raysm prices`` and ``raysm quotas``."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import say
from raysm.core.client.costs.prices import OLD_DAYS, Price, PriceTable, fetch_prices, save_prices
from raysm.core.client.service import Service
from raysm.core.request import AWS
from raysm.errors import InvalidRequest
from raysm.features.grid.capacity import market_in_use
from raysm.features.grid.local_grids import grid_names, opened
from raysm.features.grid.place import Place, Quota
from raysm.features.grid.plan import prices_of, read_quotas, services_in


def run_prices(arguments: Arguments, console: Console) -> None:
    services = services_in(read_settings(arguments).target(role=NO_ROLE), arguments.regions)
    has_scenario = any(service.connection.lists_prices for service in services)
    if arguments.refresh:
        if has_scenario:
            raise InvalidRequest(
                "--refresh fetches AWS's prices, but the embedded SageMaker has those of its scenario",
                remedy="drop --refresh, or add --on aws",
            )
        if not arguments.regions:
            raise InvalidRequest("--refresh needs the regions whose prices to fetch: --regions us-east-1,eu-west-1")
        # Prices are fetched from AWS even if jobs run on this machine, with the configured credentials.
        profile = read_settings(arguments).table(AWS.kind).get("profile")
        service = Service(AWS(role=NO_ROLE, profile=profile))
        for region in arguments.regions:
            prices = fetch_prices(service, region)
            path = save_prices(prices)
            if not arguments.json:
                version = f"version {prices.version} of {prices.as_of}"
                say(f"{region}: {len(prices.usd)} types, {version}, kept in {path}", console)
    chosen = table_of(prices_of(services), arguments.type, arguments.regions)
    if not chosen:
        what, where = arguments.type or "any type", ", ".join(arguments.regions) or "any region"
        regions = ",".join(arguments.regions) or "us-east-1"
        remedy = f"check the name, or fetch it: raysm prices --refresh --regions {regions}"
        if has_scenario:
            remedy = "set it in the scenario's table market.usd_per_hour"
        raise InvalidRequest(f"no price of {what} in {where} is known; {remedy}")
    if arguments.json:
        listed = [{"region": region, "instance_type": name, **_as_json(price)} for region, name, price in chosen]
        print(json.dumps(listed, indent=1))
        return
    today, old = datetime.now(UTC).date(), set[str]()
    for region, name, price in chosen:
        age = price.age_days(today)
        is_old = age is not None and age > OLD_DAYS
        old |= {region} if is_old else set()
        say(f"{region:<16} {name:<18} {_priced(price)}{f', {age} days old' if is_old else ''}", console)
    unknown = set(arguments.regions) - {region for region, _, _ in chosen}
    if unknown:
        say(f"no price of {arguments.type or 'any type'} is known in {', '.join(sorted(unknown))}", console)
    if missing := sorted(old | unknown):
        say(f"new prices: raysm prices --refresh --on aws --regions {','.join(missing)}", console)


def table_of(table: PriceTable, instance_type: str | None, regions: list[str]) -> list[tuple[str, str, Price]]:
    """Return (region, type, price) of the chosen types and regions, where None or an empty list means all.

    For one type, the cheapest region comes first.
    """
    prices = [(region, name, price) for (region, name), price in table.prices.items() if instance_type in (None, name)]
    chosen = [price for price in prices if not regions or price[0] in regions]
    return sorted(chosen, key=lambda each: (each[2].usd_per_hour, each[0]) if instance_type else each[:2])


def _priced(price: Price) -> str:
    return f"{price.usd_per_hour:>10,.4f} USD/h  as of {price.as_of}, version {price.version}"


def _as_json(price: Price | None) -> dict[str, object]:
    return {name: getattr(price, name, None) for name in ("usd_per_hour", "as_of", "version")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitting:
    place: Place
    limit: int
    in_use: int
    """Instances in use by open jobs of this machine's grids; the use by others of the account is unknown."""
    price: Price | None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self.place), "limit": self.limit, "in_use_by_grids": self.in_use, **_as_json(self.price)}


def run_quotas(arguments: Arguments, console: Console) -> None:
    services = services_in(read_settings(arguments).target(role=NO_ROLE), arguments.regions)
    quotas: dict[Place, Quota] = {}
    for service in services:
        quotas |= read_quotas(service, arguments.type or None)
    chosen = fitting(quotas, in_use_here(), prices_of(services), is_asked=bool(arguments.type))
    if not chosen:
        what, where = ", ".join(arguments.type) or "any type", ", ".join(arguments.regions) or "this region"
        remedy = "check the names"
        if services[0].target.kind != AWS.kind:
            where, remedy = "the embedded SageMaker", "add --on aws for those of your account"
        raise InvalidRequest(f"Service Quotas lists no training instances of {what} above 0 in {where}", remedy=remedy)
    if arguments.json:
        print(json.dumps([each.as_dict() for each in chosen], indent=1))
        return
    is_here = any(service.connection.lists_prices for service in services)
    unknown = "set it in the scenario's table market.usd_per_hour" if is_here else "raysm prices --refresh"
    for each in chosen:
        market = "spot" if each.place.spot else "on demand"
        used = f", {each.in_use:,} in use by grids of this machine" if each.in_use else ""
        price = f"  price unknown: {unknown}" if each.price is None else _priced(each.price)
        place = f"{each.place.region:<16} {each.place.instance_type:<18} {market:<9}"
        say(f"{place} {each.limit:>6,} instances{used} {price}", console)


def in_use_here() -> Counter[Place]:
    used: Counter[Place] = Counter()
    for name in grid_names():
        with opened(name) as store:
            used += market_in_use(store)
    return used


def fitting(
    quotas: Mapping[Place, Quota], in_use: Mapping[Place, int], prices: PriceTable, *, is_asked: bool = False
) -> list[Fitting]:
    """Join quotas, use and prices, sorted by region, type and market; quotas of 0 only if the user named the types."""
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
