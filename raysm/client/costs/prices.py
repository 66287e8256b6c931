"""What an instance costs an hour: dated tables of public prices, each of a region.

What flows in are the table that raysm ships, a small one, and those that ``raysm prices --refresh`` brought since; what
flows out are prices, or None: AWS changes them several times a month, and has more regions than anybody has published,
so what is not in a table is unknown, never another region's and never 0. There is no price of spot capacity: what a
spot job pays follows from its billable time
(https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html).
"""

import functools
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from raysm.contract.home import home
from raysm.contract.instance_types import has_local_storage
from raysm.contract.store import put
from raysm.errors import InvalidConfig, InvalidRequest

__all__ = [
    "OLD_DAYS",
    "Price",
    "PriceTable",
    "RegionPrices",
    "all_prices",
    "known_prices",
    "price_of",
    "price_of_user",
    "save_prices",
    "volume_usd_per_hour",
]

TABLE = "prices.json"
FOLDER = "prices"
"""Of the home: a file for each region whose prices were refreshed."""

MONTH_HOURS = 730.0
"""Hours of the month by which AWS sells volumes."""

OLD_DAYS = 60
"""After so many days prices are no longer trusted without a word: P4 and P5 fell by 33 and 44 % within a year."""

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """Of one instance, without its volume."""

    usd_per_hour: float
    """On demand."""
    origin: str
    """Where and when it was so: ``on demand in us-east-1, as of 2026-09``."""
    version: str = ""
    """Of the list that says so; empty where the user does."""
    as_of: str = ""
    """When it was so: a year, with or without month and day."""

    def __str__(self) -> str:
        return f"{self.usd_per_hour:g} USD/h ({self.origin})"

    def age_days(self, today: date) -> int | None:
        """Return how old it may be; None where the user gave it."""
        return None if not self.as_of else (today - _day(self.as_of)).days


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionPrices:
    """One list of one region."""

    region: str
    """``us-east-1``."""
    as_of: str
    """When it was published: a year, with or without month and day."""
    version: str
    """As AWS numbers its lists."""
    usd: Mapping[str, float]
    """Dollars of an hour by instance type, Training on demand."""
    volume_gb_month: float | None = None
    """Dollars of a GB of volume for a month; None is unknown."""
    source: str = ""
    """Where it was read."""

    def price(self, instance_type: str) -> Price | None:
        """Return what an instance costs; None where the list does not say."""
        usd = self.usd.get(instance_type)
        if usd is None:
            return None
        # Said with every sum: a price without its date is taken for today's.
        origin = f"on demand in {self.region}, as of {self.as_of}"
        return Price(usd_per_hour=usd, origin=origin, version=self.version, as_of=self.as_of)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "region": self.region,
            "as_of": self.as_of,
            "version": self.version,
            "source": self.source,
            "usd": dict(self.usd),
            "volume_gb_month": self.volume_gb_month,
        }


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Lists of several regions and dates, as one: of two lists the later one says what both have."""

    lists: tuple[RegionPrices, ...] = ()
    """The earliest first."""
    prices: Mapping[tuple[str, str], Price] = field(default_factory=dict, repr=False)
    """By region and type."""

    @classmethod
    def of(cls, lists: Iterable[RegionPrices]) -> "PriceTable":
        """Return the table of lists in any order."""
        # The year stands first in each date, so that they sort as texts; of one day, by their versions.
        ordered = tuple(sorted(lists, key=lambda each: (each.as_of, each.version)))
        prices: dict[tuple[str, str], Price] = {}
        for each in ordered:
            for name in each.usd:
                price = each.price(name)
                assert price is not None, "it is there"
                prices[each.region, name] = price
        return cls(ordered, prices)

    def price(self, instance_type: str, region: str) -> Price | None:
        """Return what an instance costs; None where it is not known."""
        return self.prices.get((region, instance_type))

    def volume_gb_month(self, region: str) -> float | None:
        """Return what a GB of volume costs a month; None where it is not known."""
        # The latest that has one: a list of the hours alone must not hide it.
        prices = [each.volume_gb_month for each in self.lists if each.region == region and each.volume_gb_month]
        return prices[-1] if prices else None


def known_prices(folder: Path | None = None) -> PriceTable:
    """Return what raysm ships, with what was refreshed since.

    Args:
        folder: The home; None is the user's.
    """
    files = sorted(((folder or home()) / FOLDER).glob("*.json"))
    # By name and time: a refresh in another process counts from its end on.
    return _table(tuple((str(file), file.stat().st_mtime_ns) for file in files))


def save_prices(prices: RegionPrices, folder: Path | None = None) -> Path:
    """Keep a list that was refreshed, in the place of an earlier one of its region; return its file."""
    path = (folder or home()) / FOLDER / f"{prices.region}.json"
    put(path, json.dumps(prices.as_dict(), indent=1, sort_keys=True) + "\n")
    return path


def all_prices() -> Mapping[tuple[str, str], Price]:
    """Return all prices that are known, by region and type."""
    return known_prices().prices


def price_of(instance_type: str, region: str) -> Price | None:
    """Return what an instance costs; None where it is not known."""
    return known_prices().price(instance_type, region)


def price_of_user(usd_per_hour: float) -> Price:
    """Return what the user says that an instance costs."""
    return Price(usd_per_hour=usd_per_hour, origin="--price-per-hour")


def volume_usd_per_hour(instance_type: str, volume_gb: int, region: str) -> float | None:
    """Return what the volume of an instance costs; 0 for types with disks of their own, None where it is not known."""
    if has_local_storage(instance_type):
        return 0.0
    month = known_prices().volume_gb_month(region)
    return None if month is None else volume_gb * month / MONTH_HOURS


@functools.lru_cache(maxsize=4)
def _table(files: tuple[tuple[str, int], ...]) -> PriceTable:
    # Only here: few who have a job's handle ask what it costs.
    from importlib.resources import files as resources

    shipped = json.loads(resources(__package__).joinpath(TABLE).read_text(encoding="utf-8"))
    lists = [_read(each) for each in shipped["instance_hours"]]
    for name, _ in files:
        try:
            lists.append(_read(json.loads(Path(name).read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError, InvalidConfig) as error:
            # What a job costs is no reason to stop it; but that a price is not the newest one is said.
            _log.warning("the prices in %s cannot be read (%s): raysm prices --refresh writes them anew", name, error)
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


def _day(text: str) -> date:
    """Return the first day that a date may mean."""
    # A year, or a year and a month, is filled up with the first of it.
    try:
        return date.fromisoformat(f"{text}-01-01"[:10])
    except ValueError as error:
        raise InvalidRequest(f"a list of prices is dated {text!r}; a date is written 2026-09-21") from error
