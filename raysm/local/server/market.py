"""The prices, quotas and instances of the scenario's regions.

Two limits apply, as on AWS: a quota refuses the request; missing capacity fails the job when it is
to start. moto answers neither the price list nor the quotas of SageMaker, so both are answered
here, in the form that
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html shows.
"""

import json
import math
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from raysm.core.protocol.job_api import APIS, TRAINING, JobApi, preferred, selected, settled
from raysm.core.protocol.names import LOCAL_REGION
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError

PRICES = "AWSPriceListService."
QUOTAS = "ServiceQuotasV20190624."
PUBLISHED = "2026-11-01"
INSUFFICIENT = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
    "different ML instance type."
)
"""AWS's message, as failed jobs show it (DIAGNijmegen/rse-grand-challenge, issue 2631)."""


class Stock:
    def __init__(self, scenario: Scenario, records: Records) -> None:
        self._scenario = scenario
        self._records = records
        self._lock = threading.Lock()
        self._taken: dict[str, Counter[str]] = {}
        self._texts_left: dict[str, list[str]] = {}
        # The instances of each job: of several preferred types, the one that it got.
        self._held: dict[tuple[str, JobApi, str], Counter[str]] = {}

    def interrupts(self, region: str, line: str) -> bool:
        """Return whether ``line`` interrupts the job that wrote it.

        Each text in ``interrupted_at`` does so once.
        """
        texts = self._scenario.of(region).capacity.interrupted_at
        if not texts:
            return False
        with self._lock:
            left = self._texts_left.setdefault(region, list(texts))
            found = next((text for text in left if text in line), None)
            if found is not None:
                left.remove(found)
        return found is not None

    def take(self, record: JobRecord, chance: Random) -> bool:
        capacity = self._scenario.of(record.region).capacity
        if chance.random() < capacity.insufficient:
            return False
        limits = capacity.instances
        for request in _choices(record.api, record.request):
            counts = asked_instances(record.api, request)
            with self._lock:
                in_use = self._taken.setdefault(record.region, Counter())
                if any(in_use[name] + counts[name] > limit for name, limit in limits.items()):
                    continue
                in_use.update(counts)
                self._held[record.region, record.api, record.name] = counts
            if request is not record.request:
                self._records.update(record.api, record.name, record.region, request=request)
            return True
        return False

    def give_back(self, record: JobRecord) -> None:
        with self._lock:
            held = self._held.pop((record.region, record.api, record.name), None)
            if held is not None:
                self._taken[record.region].subtract(held)

    def spot_saving(self, request: Mapping[str, Any], region: str) -> float:
        return self._scenario.of(region).market.spot_saving if _is_spot(request) else 0.0

    def check_quota(self, api: JobApi, request: Mapping[str, Any], region: str) -> None:
        market = self._scenario.of(region).market
        quotas = market.spot_quotas if _is_spot(request) else market.quotas
        # Counting looks at every job, so skip it without a quota.
        if not quotas:
            return
        refusals = []
        for choice in _choices(api, request):
            try:
                self._check_quota(api, choice, region, quotas)
                return
            except ApiError as error:
                refusals.append(error)
        raise refusals[0]

    def _check_quota(
        self, api: JobApi, request: Mapping[str, Any], region: str, quotas: Mapping[str, int]
    ) -> None:
        is_spot = _is_spot(request)
        for name, count in asked_instances(api, request).items():
            if name not in quotas:
                continue
            open_jobs = [
                record.request for record in self._records.all(api, region) if not record.final
            ]
            used = sum(
                asked_instances(api, other)[name]
                for other in open_jobs
                if _is_spot(other) is is_spot
            )
            if used + count > quotas[name]:
                raise ApiError(
                    "ResourceLimitExceeded",
                    f"The account-level service limit '{quota_name(name, api, is_spot)}' is "
                    f"{quotas[name]} Instances, with current utilization of {used} Instances and a "
                    f"request delta of {count} Instances. Please use AWS Service Quotas to request "
                    "an increase for this quota.",
                )


def draw_interruption_s(capacity: Capacity, chance: Random, *, spot: bool) -> float:
    """Draw the seconds of running after which a job is interrupted; infinity for never."""
    rate = capacity.interruptions_per_hour
    return chance.expovariate(rate / 3600) if spot and rate else math.inf


class MarketService:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def answer(self, target: str, request: Mapping[str, Any], region: str) -> dict[str, Any] | None:
        if str(request.get("ServiceCode", "")).lower() not in ("sagemaker", "amazonsagemaker"):
            return None
        if target == f"{PRICES}GetProducts":
            filters = {
                each["Field"].lower(): each["Value"] for each in request.get("Filters") or ()
            }
            # One endpoint answers for all regions; a filter names the region.
            regions = (
                [filters["regioncode"]]
                if "regioncode" in filters
                else [LOCAL_REGION, *self._scenario.regions]
            )
            products = [
                product
                for name in dict.fromkeys(regions)
                for product in _products_of(self._scenario.of(name).market, name)
                if _matches(product["product"]["attributes"], filters)
            ]
            return {
                "FormatVersion": "aws_v1",
                "PriceList": [json.dumps(product) for product in products],
            }
        quotas = list(_quotas_of(self._scenario.of(region).market))
        if target == f"{QUOTAS}ListServiceQuotas":
            return {"Quotas": quotas}
        # The account has its own value for every quota, so AWS's defaults apply to none.
        if target == f"{QUOTAS}ListAWSDefaultServiceQuotas":
            return {"Quotas": []}
        return None


def asked_instances(api: JobApi, request: Mapping[str, Any]) -> Counter[str]:
    """Return the number of instances of each type in a request.

    With preferred types, it is that of the chosen or first one.
    """
    resources = _resources(api, request)
    counts: Counter[str] = Counter()
    for group in resources.get("InstanceGroups") or [settled(resources)]:
        counts[group["InstanceType"]] += group["InstanceCount"]
    return counts


def quota_name(instance_type: str, api: JobApi, is_spot: bool) -> str:
    return f"{instance_type} for {'spot ' if is_spot else ''}{api.kind} job usage"


def _resources(api: JobApi, request: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in api.cluster_keys:
        request = request[key]
    return request


def _choices(api: JobApi, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the request with each of its preferred types, in their order.

    Yield the request itself if it prefers none.
    """
    resources = _resources(api, request)
    if not preferred(resources):
        yield request
    for name, count in preferred(resources):
        yield {**request, "ResourceConfig": selected(resources, name, count)}


def _is_spot(request: Mapping[str, Any]) -> bool:
    return bool(request.get("EnableManagedSpotTraining"))


def _products_of(market: Market, region: str) -> Iterator[dict[str, Any]]:
    for name, usd in sorted(market.usd_per_hour.items()):
        code = f"RAYSM{region}{name}".replace("-", "").replace(".", "").upper()
        dimension = {
            "unit": "Hrs",
            "pricePerUnit": {"USD": f"{usd:.10f}"},
            "beginRange": "0",
            "endRange": "Inf",
        }
        attributes = {
            "servicecode": "AmazonSageMaker",
            "regionCode": region,
            "instanceName": name,
            # Processing costs the same as training.
            "component": "Training",
            "platoinstancetype": "Training",
            "usagetype": f"{region}-Train:{name}",
        }
        yield {
            "product": {"productFamily": "ML Instance", "sku": code, "attributes": attributes},
            "serviceCode": "AmazonSageMaker",
            "terms": {
                "OnDemand": {
                    f"{code}.T": {"sku": code, "priceDimensions": {f"{code}.T.D": dimension}}
                }
            },
            "version": PUBLISHED.replace("-", ""),
            "publicationDate": f"{PUBLISHED}T00:00:00Z",
        }


def _matches(attributes: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    values = {name.lower(): value for name, value in attributes.items()}
    # Ignore filters by attributes that these products lack; AWS's have dozens.
    return all(values.get(name, value) == value for name, value in filters.items())


def _quotas_of(market: Market) -> Iterator[dict[str, Any]]:
    for api in APIS:
        for is_spot, quotas in (
            (False, market.quotas),
            (True, market.spot_quotas if api is TRAINING else {}),
        ):
            for name, limit in sorted(quotas.items()):
                title = quota_name(name, api, is_spot)
                yield {
                    "ServiceCode": "sagemaker",
                    "ServiceName": "Amazon SageMaker",
                    "QuotaCode": f"L-{zlib.crc32(title.encode()):08X}",
                    "QuotaName": title,
                    "Value": float(limit),
                    "Unit": "None",
                    "Adjustable": True,
                    "GlobalQuota": False,
                }
