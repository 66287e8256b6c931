"""The command ``raysm prices``."""

import json
from datetime import UTC, datetime

from rich.console import Console

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import say
from raysm.core.client.costs.prices import (
    OLD_DAYS,
    Price,
    PriceTable,
    fetch_prices,
    prices_of,
    save_prices,
)
from raysm.core.client.service import Service, services_in
from raysm.core.request import AWS
from raysm.errors import InvalidRequest


def run(arguments: Arguments, console: Console) -> None:
    services = services_in(read_settings(arguments).target(role=NO_ROLE), arguments.regions)
    has_scenario = any(service.connection.lists_prices for service in services)
    if arguments.refresh:
        if has_scenario:
            raise InvalidRequest(
                "--refresh fetches AWS's prices, but the embedded SageMaker has those of its "
                "scenario",
                remedy="drop --refresh, or add --on aws",
            )
        if not arguments.regions:
            raise InvalidRequest(
                "--refresh needs the regions whose prices to fetch: --regions us-east-1,eu-west-1"
            )
        # Prices are fetched from AWS even if jobs run on this machine, with the configured
        # credentials.
        profile = read_settings(arguments).table(AWS.kind).get("profile")
        service = Service(AWS(role=NO_ROLE, profile=profile))
        for region in arguments.regions:
            prices = fetch_prices(service, region)
            path = save_prices(prices)
            if not arguments.json:
                version = f"version {prices.version} of {prices.as_of}"
                say(f"{region}: {len(prices.usd)} types, {version}, kept in {path}", console)
    chosen = select_prices(prices_of(services), arguments.type, arguments.regions)
    if not chosen:
        what = arguments.type or "any type"
        where = ", ".join(arguments.regions) or "any region"
        regions = ",".join(arguments.regions) or "us-east-1"
        remedy = f"check the name, or fetch it: raysm prices --refresh --regions {regions}"
        if has_scenario:
            remedy = "set it in the scenario's table market.usd_per_hour"
        raise InvalidRequest(f"no price of {what} in {where} is known; {remedy}")
    if arguments.json:
        listed = [
            {"region": region, "instance_type": name, **price.as_dict()}
            for region, name, price in chosen
        ]
        print(json.dumps(listed, indent=1))
        return
    today = datetime.now(UTC).date()
    old = set[str]()
    for region, name, price in chosen:
        age = price.age_days(today)
        is_old = age is not None and age > OLD_DAYS
        old |= {region} if is_old else set()
        say(
            f"{region:<16} {name:<18} {price.line()}{f', {age} days old' if is_old else ''}",
            console,
        )
    unknown = set(arguments.regions) - {region for region, _, _ in chosen}
    if unknown:
        say(
            f"no price of {arguments.type or 'any type'} is known in {', '.join(sorted(unknown))}",
            console,
        )
    if missing := sorted(old | unknown):
        say(f"new prices: raysm prices --refresh --on aws --regions {','.join(missing)}", console)


def select_prices(
    table: PriceTable, instance_type: str | None, regions: list[str]
) -> list[tuple[str, str, Price]]:
    """Return (region, type, price) of the chosen types and regions; None or [] means all.

    For one type, the cheapest region comes first.
    """
    prices = [
        (region, name, price)
        for (region, name), price in table.prices.items()
        if instance_type in (None, name)
    ]
    chosen = [price for price in prices if not regions or price[0] in regions]
    return sorted(
        chosen, key=lambda each: (each[2].usd_per_hour, each[0]) if instance_type else each[:2]
    )
