"""The price list and Service Quotas, answered from the scenario: what raysm asks AWS of a place, it can ask here.

moto serves neither of SageMaker (its price list answers 404, its quotas know of VPCs alone). What flows in is a
request, what flows out is its answer in the form that AWS's public documents show.
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raysm.contract.job_api import APIS, TRAINING
from raysm.contract.names import LOCAL_REGION
from raysm.local.scenario import Market, Scenario
from raysm.local.server.api_error import ApiError
from raysm.local.server.stock import quota_name

__all__ = ["MarketService", "PRICES", "QUOTAS"]

PRICES = "AWSPriceListService."
QUOTAS = "ServiceQuotasV20190624."
"""How the targets of requests begin."""

PAGE = 100
SERVICE = "sagemaker"
SKU = "RAYSM"


class MarketService:
    """Answers GetProducts, ListServiceQuotas, ListAWSDefaultServiceQuotas and GetServiceQuota of SageMaker."""

    def __init__(self, scenario: Scenario) -> None:
        """Tell what ``scenario`` has."""
        self._scenario = scenario
        self._operations: dict[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
            f"{PRICES}GetProducts": self._products,
            f"{QUOTAS}ListServiceQuotas": self._listed_quotas,
            # All that is told is of the account: nothing is left to AWS's defaults.
            f"{QUOTAS}ListAWSDefaultServiceQuotas": lambda request, region: {"Quotas": []},
            f"{QUOTAS}GetServiceQuota": self._quota,
        }

    def answer(self, target: str, request: Mapping[str, Any], region: str) -> dict[str, Any] | None:
        """Return the answer, or None where the request is about another service, or of another kind.

        Raises:
            ApiError: There is no such quota.
        """
        is_ours = str(request.get("ServiceCode", "")).lower() in (SERVICE, "amazonsagemaker")
        if target not in self._operations or not is_ours:
            return None
        return self._operations[target](request, region)

    def _products(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        filters = {each["Field"].lower(): each["Value"] for each in request.get("Filters") or ()}
        # The endpoint is one for all regions, as AWS's is: which one is meant says a filter.
        regions = [filters["regioncode"]] if "regioncode" in filters else [LOCAL_REGION, *self._scenario.regions]
        products = [
            product
            for name in dict.fromkeys(regions)
            for product in _products_of(self._scenario.of(name).market, name)
            if _matches(product["product"]["attributes"], filters)
        ]
        page, more = _page(products, request)
        return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product) for product in page], **more}

    def _listed_quotas(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        page, more = _page(list(_quotas_of(self._scenario.of(region).market, region)), request)
        return {"Quotas": page, **more}

    def _quota(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        for quota in _quotas_of(self._scenario.of(region).market, region):
            if quota["QuotaCode"] == request.get("QuotaCode"):
                return {"Quota": quota}
        raise ApiError("NoSuchResourceException", f"there is no quota {request.get('QuotaCode')!r} of SageMaker")


def _products_of(market: Market, region: str) -> Iterator[dict[str, Any]]:
    version = market.published.replace("-", "")
    for name, usd in sorted(market.usd_per_hour.items()):
        # Only training: what processing costs is the same, wherever both are known.
        code = f"{SKU}{region}{name}".replace("-", "").replace(".", "").upper()
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}, "beginRange": "0", "endRange": "Inf"}
        yield {
            "product": {
                "productFamily": "ML Instance",
                "sku": code,
                "attributes": {
                    "servicecode": "AmazonSageMaker",
                    "regionCode": region,
                    "instanceName": name,
                    "component": "Training",
                    "platoinstancetype": "Training",
                    "usagetype": f"{region}-Train:{name}",
                },
            },
            "serviceCode": "AmazonSageMaker",
            "terms": {"OnDemand": {f"{code}.T": {"sku": code, "priceDimensions": {f"{code}.T.D": dimension}}}},
            "version": version,
            "publicationDate": f"{market.published}T00:00:00Z",
        }


def _matches(attributes: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    values = {name.lower(): value for name, value in attributes.items()}
    # One that this list does not tell of a product filters nothing: AWS's has dozens.
    return all(values.get(name, value) == value for name, value in filters.items())


def _quotas_of(market: Market, region: str) -> Iterator[dict[str, Any]]:
    for api in APIS:
        # Spot is of training jobs alone.
        for is_spot, quotas in ((False, market.quotas), (True, market.spot_quotas if api is TRAINING else {})):
            for name, limit in sorted(quotas.items()):
                title = quota_name(name, api, is_spot)
                yield {
                    "ServiceCode": SERVICE,
                    "ServiceName": "Amazon SageMaker",
                    "QuotaCode": f"L-{zlib.crc32(title.encode()):08X}",
                    "QuotaName": title,
                    "Value": float(limit),
                    "Unit": "None",
                    "Adjustable": True,
                    "GlobalQuota": False,
                }


def _page(items: list[Any], request: Mapping[str, Any]) -> tuple[list[Any], dict[str, str]]:
    begin = int(request.get("NextToken") or 0)
    end = begin + int(request.get("MaxResults") or PAGE)
    return items[begin:end], {"NextToken": str(end)} if end < len(items) else {}
