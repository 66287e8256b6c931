"""AWS's public lists of prices, as CSV files and as what GetProducts answers: both flow in, RegionPrices flow out.

A file begins with lines of its own (version, date of publication) before its header, and has a line for each product
and term: SageMaker's has tens of thousands, of which on-demand hours of training are a few hundred. So it is read line
by line, and never held. https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-the-aws-price-list-bulk-api.html
"""

import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.client.costs.prices import RegionPrices
from raysm.errors import ServiceError

__all__ = ["prices_of_offer", "prices_of_products"]

MOST_METADATA = 20
"""Lines within which a header comes, or the file is none: today it is the sixth."""

ON_DEMAND = "OnDemand"
HOURS = "Hrs"
GB_MONTHS = "GB-Mo"
TRAINING = "training"
"""The component, or ``platoinstancetype``, of a product, in lower case. Processing costs the same wherever both are
known."""

VOLUME = "train:volumeusage"
"""Part of the usage type of a training job's volume, in lower case: ``USE1-Train:VolumeUsage.gp2``."""


@dataclass(slots=True)
class _Found:
    """What a list says of one region, so far."""

    usd: dict[str, float] = field(default_factory=dict)
    volume: float | None = None


def prices_of_offer(lines: Iterable[str], source: str) -> list[RegionPrices]:
    """Return the prices of an offer file, by region: one, or all of them.

    Args:
        lines: Of the CSV file.
        source: Where it was read.

    Raises:
        ServiceError: It is no such file.
    """
    reader = csv.reader(lines)
    metadata: dict[str, str] = {}
    header: list[str] = []
    # A web page in its place, as some proxies send it, has no header at all: it is not read to its end.
    for values in itertools.islice(reader, MOST_METADATA):
        if values and values[0] == "SKU":
            header = [name.lower() for name in values]
            break
        if len(values) >= 2:
            metadata[values[0]] = values[1]
    needed = ("termtype", "unit", "priceperunit", "currency", "usagetype", "region code")
    missing = [name for name in needed if name not in header]
    if missing:
        raise ServiceError(
            f"{source} is not a list of prices: it has no column {missing[0]!r}; the format may have changed"
        )
    by_region: dict[str, _Found] = {}
    for values in _on_demand(reader, header):
        row = dict(zip(header, values, strict=False))
        _take(by_region, row["region code"], row)
    return _lists(by_region, metadata.get("Publication Date", "")[:10], metadata.get("Version", ""), source)


def prices_of_products(texts: Iterable[str], source: str) -> list[RegionPrices]:
    """Return the prices of what ``pricing.GetProducts`` answers, by region.

    Args:
        texts: Members of its ``PriceList``: a product with its terms each, as JSON.
        source: Who answered.

    Raises:
        ServiceError: They are no such products.
    """
    by_region: dict[str, _Found] = {}
    published = version = ""
    for text in texts:
        try:
            product = json.loads(text)
            attributes = {name.lower(): value for name, value in product["product"]["attributes"].items()}
            # Each product has its own; the latest is that of the answer as a whole.
            published, version = max(published, product["publicationDate"]), max(version, product["version"])
            for unit, amount in _dimensions(product["terms"]):
                row = {
                    "component": attributes.get("component") or attributes.get("platoinstancetype", ""),
                    "instance name": attributes.get("instancename", ""),
                    "usagetype": attributes.get("usagetype", ""),
                    "unit": unit,
                    "priceperunit": amount,
                }
                _take(by_region, attributes["regioncode"], row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServiceError(f"{source}: GetProducts answered with what is not a product: {error!r}") from error
    return _lists(by_region, published[:10], version, source)


def _on_demand(reader: Iterator[list[str]], header: list[str]) -> Iterator[list[str]]:
    """Yield the lines of on-demand dollars; the others are most of them, and are not even made dictionaries."""
    term, currency = header.index("termtype"), header.index("currency")
    # China's lists are in CNY, and a number of another currency must not be taken for dollars.
    return (
        values
        for values in reader
        if len(values) > max(term, currency) and values[term] == ON_DEMAND and values[currency] == "USD"
    )


def _dimensions(terms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for term in terms.get(ON_DEMAND, {}).values():
        for dimension in term["priceDimensions"].values():
            if "USD" in dimension["pricePerUnit"]:
                yield dimension["unit"], dimension["pricePerUnit"]["USD"]


def _take(by_region: dict[str, _Found], region: str, row: Mapping[str, str]) -> None:
    try:
        amount = float(row["priceperunit"])
    except ValueError:
        return
    # A free tier is listed at 0, and no hour costs nothing: unknown is better than that.
    if not region or not 0 < amount < math.inf:
        return
    name = row.get("instance name", "")
    if row["unit"] == HOURS and row.get("component", "").lower() == TRAINING and name.startswith("ml."):
        # Of several lines the dearest: raysm must not promise less than what is billed.
        prices = by_region.setdefault(region, _Found())
        prices.usd[name] = max(amount, prices.usd.get(name, 0.0))
    elif row["unit"] == GB_MONTHS and VOLUME in row["usagetype"].lower():
        prices = by_region.setdefault(region, _Found())
        prices.volume = max(amount, prices.volume or 0.0)


def _lists(by_region: Mapping[str, _Found], as_of: str, version: str, source: str) -> list[RegionPrices]:
    if not any(each.usd for each in by_region.values()):
        raise ServiceError(f"{source} has no price of training on demand; the format may have changed")
    # An estimate says of which day its prices are: without one nobody could tell how old they may be.
    if not as_of:
        raise ServiceError(f"{source} does not say when it was published; download it again")
    return [
        RegionPrices(
            region=region,
            as_of=as_of,
            version=version or as_of,
            usd=each.usd,
            volume_gb_month=each.volume,
            source=source,
        )
        for region, each in sorted(by_region.items())
    ]
