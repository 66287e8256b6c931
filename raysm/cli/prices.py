"""``raysm prices``: what instances cost, by region, each price with the date and version of its list."""

import difflib
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.client.costs.prices import OLD_DAYS, Price, PriceTable, fetch_prices, save_prices
from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.grid.planning import prices_of, services_in
from raysm.request import AWS

__all__ = ["run", "table_of"]


def run(arguments: Arguments, console: Console) -> None:
    """Print prices; with ``--refresh``, fetch the lists of some regions first.

    Raises:
        InvalidRequest: ``--refresh`` without regions or with a scenario, or no price is known.
        ServiceError: GetProducts failed.
    """
    services = services_in(read_settings(arguments).target(role=NO_ROLE), arguments.regions)
    if arguments.refresh:
        if _plays(services):
            raise InvalidRequest(
                "--refresh fetches AWS's prices, but the embedded SageMaker has those of its scenario",
                remedy="drop --refresh, or add --on aws",
            )
        _refresh(arguments, console)
    chosen = table_of(prices_of(services), arguments.type, arguments.regions)
    if not chosen:
        what, where = arguments.type or "any type", ", ".join(arguments.regions) or "any region"
        if _plays(services):
            remedy = "the scenario says what it costs, in its table market.usd_per_hour"
        else:
            types = sorted({name for _, name in prices_of(services).prices})
            if arguments.type not in types:
                near = difflib.get_close_matches(arguments.type or "", types, n=1, cutoff=0.8)
                what += f" (did you mean {near[0]}?)" if near else ""
            remedy = f"bring it: raysm prices --refresh --regions {','.join(arguments.regions) or 'us-east-1'}"
        raise InvalidRequest(f"no price of {what} in {where} is at hand; {remedy}")
    if arguments.json:
        print(json.dumps([_as_json(*each) for each in chosen], indent=1))
        return
    today = datetime.now(UTC).date()
    width = max(len(instance_type) for _, instance_type, _ in chosen)
    for region, instance_type, price in chosen:
        line = f"{region:<16} {instance_type:<{width}} {price.usd_per_hour:>10,.4f} USD/h  {_dated(price, today)}"
        console.print(Text(line), soft_wrap=True)


def _plays(services: Iterable[Service]) -> bool:
    """Whether they have the prices of a scenario."""
    return any(service.connection.lists_prices for service in services)


def table_of(table: PriceTable, instance_type: str | None, regions: list[str]) -> list[tuple[str, str, Price]]:
    """Return region, type and price of what is asked for, the cheapest first where one type is.

    Args:
        table: All that is known.
        instance_type: One; None is all.
        regions: None is all.
    """
    chosen = [
        (region, name, price)
        for (region, name), price in table.prices.items()
        if instance_type in (None, name) and (not regions or region in regions)
    ]
    if instance_type is not None:
        return sorted(chosen, key=lambda each: (each[2].usd_per_hour, each[0]))
    return sorted(chosen, key=lambda each: each[:2])


def _refresh(arguments: Arguments, console: Console) -> None:
    if not arguments.regions:
        raise InvalidRequest("--refresh needs the regions whose prices to fetch: --regions us-east-1,eu-west-1")
    # Prices are AWS's, wherever jobs go: with the credentials of the configuration.
    profile = read_settings(arguments).table(AWS.kind).get("profile")
    service = Service(AWS(role=NO_ROLE, profile=profile))
    for region in arguments.regions:
        prices = fetch_prices(service, region)
        path = save_prices(prices)
        if not arguments.json:
            text = f"{region}: {len(prices.usd)} types, version {prices.version} of {prices.as_of}, kept in {path}"
            console.print(Text(text), soft_wrap=True)


def _dated(price: Price, today: date) -> str:
    age = price.age_days(today)
    old = f", {age} days old: raysm prices --refresh" if age is not None and age > OLD_DAYS else ""
    return f"as of {price.as_of}, version {price.version}{old}"


def _as_json(region: str, instance_type: str, price: Price) -> dict[str, object]:
    return {
        "region": region,
        "instance_type": instance_type,
        "usd_per_hour": price.usd_per_hour,
        "as_of": price.as_of,
        "version": price.version,
    }
