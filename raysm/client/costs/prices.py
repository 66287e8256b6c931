"""What an instance costs an hour: a small table of public prices, each with its region and date.

What flows in are the types of a job's instances and their region; what flows out are prices, or None: AWS changes them
several times a month, and has more regions than anybody has published, so what is not in the table is unknown, never
another region's and never 0. There is no price of spot capacity: what a spot job pays follows from its billable time
(https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html).
"""

import functools
import json
from dataclasses import dataclass
from typing import Any

from raysm.contract.local_storage import has_local_storage

__all__ = ["Price", "all_prices", "price_of_user", "price_of", "volume_usd_per_hour"]

TABLE = "prices.json"

MONTH_HOURS = 730.0
"""Hours of the month by which AWS sells volumes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """Of one instance, without its volume."""

    usd_per_hour: float
    """On demand."""
    origin: str
    """Where and when it was so: ``on demand in us-east-1, as of 2026-09``."""

    def __str__(self) -> str:
        return f"{self.usd_per_hour:g} USD/h ({self.origin})"


@functools.cache
def all_prices() -> dict[tuple[str, str], Price]:
    """Return the table: prices by region and type; of two dates, the later one."""
    prices: dict[tuple[str, str], Price] = {}
    # The year stands first in each date, so that they sort as texts.
    for table in sorted(_table()["instance_hours"], key=lambda table: str(table["as_of"])):
        origin = f"on demand in {table['region']}, as of {table['as_of']}"
        for name, usd in table["usd"].items():
            prices[table["region"], name] = Price(usd_per_hour=usd, origin=origin)
    return prices


def price_of(instance_type: str, region: str) -> Price | None:
    """Return what an instance costs; None where it is not known."""
    return all_prices().get((region, instance_type))


def price_of_user(usd_per_hour: float) -> Price:
    """Return what the user says that an instance costs."""
    return Price(usd_per_hour=usd_per_hour, origin="--price-per-hour")


def volume_usd_per_hour(instance_type: str, volume_gb: int, region: str) -> float | None:
    """Return what the volume of an instance costs; 0 for types with disks of their own, None where it is not known."""
    if has_local_storage(instance_type):
        return 0.0
    month = _table()["volume_gb_months"].get(region)
    return None if month is None else volume_gb * month / MONTH_HOURS


@functools.cache
def _table() -> dict[str, Any]:
    # Only here: few who have a job's handle ask what it costs.
    from importlib.resources import files

    table: dict[str, Any] = json.loads(files(__package__).joinpath(TABLE).read_text(encoding="utf-8"))
    return table
