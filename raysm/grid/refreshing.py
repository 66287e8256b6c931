"""Prices as they are now: a region flows in, its list flows out, from AWS's public files or from whom a job is sent to.

The files need no credentials. The embedded SageMaker has prices of its own, those of its scenario, and answers
GetProducts; a price of AWS would say nothing of it.
"""

import http.client
import io
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from raysm.client.costs.offer_file import prices_of_offer, prices_of_products
from raysm.client.costs.prices import RegionPrices
from raysm.client.service import Service
from raysm.errors import ServiceError

__all__ = ["OFFER_URL", "Opener", "listed_prices", "published_prices"]

OFFER_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/current/{region}/index.csv"
"""Of one region: all of them in one file are hundreds of MB."""

SILENCE_S = 60.0

Opener = Callable[[str], IO[bytes]]
"""Opens an address for reading."""


def published_prices(region: str, open_url: Opener | None = None) -> RegionPrices:
    """Return the prices of a region from AWS's public file; it takes no credentials.

    Args:
        region: ``us-east-1``.
        open_url: How an address is opened; None asks the network.

    Raises:
        ServiceError: It cannot be had, or is no list of prices.
    """
    url = OFFER_URL.format(region=region)
    try:
        with (open_url or _open)(url) as file:
            # As it arrives: the file is tens of MB, of which a few kB are kept.
            lists = prices_of_offer(io.TextIOWrapper(file, encoding="utf-8", newline=""), url)
            # Of a connection that is cut http.client says nothing: half a list would be one with fewer types.
            if left := getattr(file, "length", None):
                raise ConnectionError(f"it broke off {left:,} bytes before its end")
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:  # what urllib raises is an OSError
        reason = getattr(error, "reason", error)
        raise ServiceError(
            f"{url} cannot be read: {reason}; check the region, and the way to AWS", is_transient=True
        ) from error
    return _only(lists, region, url)


def listed_prices(service: Service) -> RegionPrices:
    """Return the prices of a service's own region, by GetProducts.

    Raises:
        ServiceError: It does not answer, or has none.
    """
    source = f"GetProducts in {service.region}"
    return _only(prices_of_products(_products(service), source), service.region, source)


def _products(service: Service) -> Iterator[str]:
    more: dict[str, str] = {}
    filters = [
        {"Type": "TERM_MATCH", "Field": "regionCode", "Value": service.region},
        {"Type": "TERM_MATCH", "Field": "platoinstancetype", "Value": "Training"},
    ]
    while True:
        page = service.call(
            "pricing", "get_products", ServiceCode="AmazonSageMaker", Filters=filters, MaxResults=100, **more
        )
        yield from page["PriceList"]
        if not page.get("NextToken"):
            return
        more = {"NextToken": page["NextToken"]}


def _open(url: str) -> IO[bytes]:
    opened: IO[bytes] = urllib.request.urlopen(url, timeout=SILENCE_S)
    return opened


def _only(lists: Iterable[RegionPrices], region: str, source: str) -> RegionPrices:
    for each in lists:
        if each.region == region:
            return each
    raise ServiceError(f"{source} has no prices of {region}; check the region's name")
