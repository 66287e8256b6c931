"""Prices of instances: dated lists of AWS's public prices, each of one region.

raysm ships a small table; ``raysm prices --refresh`` fetches current lists by GetProducts. A price
that is in no list is unknown: never that of another region, and never 0. Spot capacity has no price
of its own, but fewer billed seconds
(https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html).
"""

import functools
import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from raysm.core.client.costs.cap import MIN_PAID_S, Cap, cap
from raysm.core.client.service import Service
from raysm.core.protocol.home import home, private_folder
from raysm.core.protocol.instance_types import has_local_storage
from raysm.core.protocol.store import put
from raysm.core.request import Cluster, Limits
from raysm.errors import InvalidConfig, InvalidRequest, ServiceError

FOLDER = "prices"
"""Below the home: one file for each region whose prices were fetched."""

MONTH_HOURS = 730.0
"""Hours in the month by which AWS sells volumes."""

OLD_DAYS = 60
"""Older prices are shown with a warning: P4 and P5 fell by 33 and 44 % within a year."""

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The price of one instance, without its volume."""

    usd_per_hour: float
    origin: str
    """Region and date: ``on demand in us-east-1, as of 2026-09``."""
    version: str = ""
    as_of: str = ""
    """A year, with or without month and day; empty if the user gave the price."""

    def __str__(self) -> str:
        return f"{self.usd_per_hour:g} USD/h ({self.origin})"

    def line(self) -> str:
        """Return it as the end of a line of a table."""
        return f"{self.usd_per_hour:>10,.4f} USD/h  as of {self.as_of}, version {self.version}"

    def as_dict(self) -> dict[str, object]:
        """Return what programs read of it."""
        return {"usd_per_hour": self.usd_per_hour, "as_of": self.as_of, "version": self.version}

    def age_days(self, today: date) -> int | None:
        """Return the age of the price, from the first day that its date may mean.

        None means that it has no date.
        """
        if not self.as_of:
            return None
        try:
            return (today - date.fromisoformat(f"{self.as_of}-01-01"[:10])).days
        except ValueError as error:
            raise InvalidRequest(
                f"a list of prices is dated {self.as_of!r}; a date is written 2026-09-21"
            ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionPrices:
    region: str
    as_of: str
    version: str
    usd: Mapping[str, float]
    """USD per hour by instance type, training on demand."""
    volume_gb_month: float | None = None
    """USD for a GB of volume and month."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Lists of several regions and dates; later lists override earlier ones."""

    lists: tuple[RegionPrices, ...] = ()
    """The earliest first."""
    prices: Mapping[tuple[str, str], Price] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, lists: Iterable[RegionPrices]) -> "PriceTable":
        ordered = tuple(sorted(lists, key=lambda each: (each.as_of, each.version)))
        prices: dict[tuple[str, str], Price] = {}
        for each in ordered:
            origin = f"on demand in {each.region}, as of {each.as_of}"
            for name, usd in each.usd.items():
                price = Price(
                    usd_per_hour=usd, origin=origin, version=each.version, as_of=each.as_of
                )
                prices[each.region, name] = price
        return cls(ordered, prices)

    def price(self, instance_type: str, region: str) -> Price | None:
        return self.prices.get((region, instance_type))

    def volume_usd_per_hour(self, instance_type: str, volume_gb: int, region: str) -> float | None:
        if has_local_storage(instance_type):
            return 0.0
        prices = [
            each.volume_gb_month
            for each in self.lists
            if each.region == region and each.volume_gb_month
        ]
        return volume_gb * prices[-1] / MONTH_HOURS if prices else None


def known_prices(folder: Path | None = None) -> PriceTable:
    files = sorted(((folder or home()) / FOLDER).glob("*.json"))
    # By modification time too, so that a refresh in another process counts at once.
    return _table(tuple((str(file), file.stat().st_mtime_ns) for file in files))


@functools.lru_cache(maxsize=4)
def _table(files: tuple[tuple[str, int], ...]) -> PriceTable:
    from importlib.resources import files as resources

    shipped = json.loads(
        resources("raysm.core.client.costs").joinpath("prices.json").read_text(encoding="utf-8")
    )
    lists = [_read(each) for each in shipped["instance_hours"]]
    for name, _ in files:
        try:
            lists.append(_read(json.loads(Path(name).read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError, InvalidConfig) as error:
            _log.warning(
                "the prices in %s cannot be read (%s): raysm prices --refresh writes them anew",
                name,
                error,
            )
    return PriceTable.of(lists)


def _read(data: Mapping[str, Any]) -> RegionPrices:
    return RegionPrices(
        region=str(data["region"]),
        as_of=str(data["as_of"]),
        version=str(data["version"]),
        usd={str(name): float(usd) for name, usd in data["usd"].items()},
        volume_gb_month=data.get("volume_gb_month"),
        source=str(data.get("source", "")),
    )


def save_prices(prices: RegionPrices, folder: Path | None = None) -> Path:
    path = private_folder(folder or home(), FOLDER) / f"{prices.region}.json"
    put(path, json.dumps(asdict(prices), indent=1, sort_keys=True) + "\n")
    return path


def price_of(instance_type: str, region: str) -> Price | None:
    return known_prices().price(instance_type, region)


def price_of_user(usd_per_hour: float) -> Price:
    if not 0 <= usd_per_hour < math.inf:
        raise InvalidRequest(
            f"--price-per-hour must be a price of at least 0 USD, got {usd_per_hour:g}"
        )
    return Price(usd_per_hour=usd_per_hour, origin="--price-per-hour")


def volume_usd_per_hour(instance_type: str, volume_gb: int, region: str) -> float | None:
    return known_prices().volume_usd_per_hour(instance_type, volume_gb, region)


def usd_per_hour(cluster: Cluster, service: Service, price_per_hour: float | None) -> float | None:
    """Return the maximum hourly cost of all instances; None if unknown or nothing is billed."""
    is_billed = service.target.is_billed
    totals = []
    for choice in cluster.choices:
        total = 0.0
        for instance_type, count in choice.items():
            usd = None if price_per_hour is None else float(price_per_hour)
            if (
                usd is None
                and is_billed
                and (listed := price_of(instance_type, service.region)) is not None
            ):
                usd = listed.usd_per_hour
            if usd is None:
                return None
            # ML storage is billed in addition: https://aws.amazon.com/sagemaker/ai/pricing/
            volume = (
                volume_usd_per_hour(instance_type, cluster.volume_gb, service.region)
                if is_billed
                else None
            )
            total += count * (usd + (volume or 0.0))
        totals.append(total)
    # The most expensive choice, because the service decides later which instance type it takes.
    return max(totals)


def cap_of(cluster: Cluster, limits: Limits, service: Service) -> Cap | None:
    """Return the cap of a job on ``cluster``; None if it has none, or if nothing is billed.

    Raises:
        InvalidRequest: A price is unknown, or the cap does not pay for a few minutes.
    """
    usd = capped_usd_per_hour(cluster, limits, service)
    if limits.max_cost is None or usd is None:
        return None
    return cap(
        limits.max_cost,
        usd_per_hour=usd,
        max_runtime_s=limits.max_runtime_s,
        has_follow_ups=limits.max_restarts > 0,
        keep_alive_s=cluster.keep_alive_s,
        # Where nothing is billed, a cap is only tried out.
        min_s=MIN_PAID_S if service.target.is_billed else 1,
    )


def capped_usd_per_hour(cluster: Cluster, limits: Limits, service: Service) -> float | None:
    """Return what all instances of a job with a cap cost in an hour at most.

    None means that there is no cap or no cost.

    Raises:
        InvalidRequest: The price of an instance or of its volume is unknown.
    """
    given = limits.price_per_hour
    if limits.max_cost is None and limits.max_cost_per_day is None:
        return None
    if given is None and service.target.is_billed:
        _check_prices_are_known(cluster, limits, service.region)
    return usd_per_hour(cluster, service, given)


def _check_prices_are_known(cluster: Cluster, limits: Limits, region: str) -> None:
    option = "max_cost" if limits.max_cost is not None else "max_cost_per_day"
    for name in cluster.types:
        if price_of(name, region) is None:
            what = f"the price of {name}"
            fetch = f"; raysm prices --refresh --on aws --regions {region} fetches it"
        elif volume_usd_per_hour(name, cluster.volume_gb, region) is None:
            what = f"the price of the volume of {name}"
            fetch = ""
        else:
            continue
        raise InvalidRequest(
            f"{option} cannot be kept: {what} in {region} is unknown",
            remedy="give --price-per-hour USD (Limits(price_per_hour=…) in Python), the price of "
            f"one instance with its volume{fetch}",
        )


def fetch_prices(service: Service, region: str | None = None) -> RegionPrices:
    region = region or service.region
    filters = {"regionCode": region, "platoinstancetype": "Training"}
    terms = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in filters.items()
    ]
    pages = service.pages("pricing", "get_products", ServiceCode="AmazonSageMaker", Filters=terms)
    source = f"GetProducts in {region}"
    for prices in prices_of_products(
        (text for page in pages for text in page["PriceList"]), source
    ):
        if prices.region == region:
            return prices
    raise ServiceError(f"{source} has no prices of {region}", remedy="check the region's name")


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
    # Not together with known prices: AWS's price is not that of an emulated region, and the later
    # date would win.
    return PriceTable.of(listed) if listed else known_prices()


def prices_of_products(texts: Iterable[str], source: str) -> list[RegionPrices]:
    usd: dict[str, dict[str, float]] = {}
    published = version = ""
    for text in texts:
        try:
            product = json.loads(text)
            attributes = {
                name.lower(): value for name, value in product["product"]["attributes"].items()
            }
            # Each product has its own date; the latest one is that of the whole answer.
            published = max(published, product["publicationDate"])
            version = max(version, product["version"])
            region = attributes["regioncode"]
            name = attributes.get("instancename", "")
            kind = attributes.get("component") or attributes.get("platoinstancetype", "")
            for term in product["terms"].get("OnDemand", {}).values():
                for dimension in term["priceDimensions"].values():
                    amount = float(dimension["pricePerUnit"].get("USD", 0))
                    # A free tier is listed at 0. Of two prices the higher one counts, since it may
                    # be billed.
                    is_training = kind.lower() == "training" and dimension["unit"] == "Hrs"
                    if is_training and name.startswith("ml.") and amount > 0:
                        of_region = usd.setdefault(region, {})
                        of_region[name] = max(amount, of_region.get(name, 0.0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServiceError(
                f"{source}: GetProducts answered with what is not a product: {error!r}"
            ) from error
    if not usd or not published:
        raise ServiceError(f"{source} has no dated price of training on demand")
    day = published[:10]
    return [
        RegionPrices(region=name, as_of=day, version=version, usd=usd[name], source=source)
        for name in sorted(usd)
    ]
