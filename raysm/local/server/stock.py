"""The instances that a region has, and may give to an account: jobs flow in, what refuses them flows out.

Two limits, as on AWS: the quota refuses a request before there is a job; capacity is missing when the job is to start.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from raysm.contract.clock import Clock
from raysm.contract.job_api import JobApi
from raysm.local.scenario import Scenario, within
from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord, Records

__all__ = ["Stock", "asked_instances", "quota_name"]


def asked_instances(api: JobApi, request: Mapping[str, Any]) -> Counter[str]:
    """Return how many instances of each type a request asks for."""
    resources: Mapping[str, Any] = request
    for key in api.cluster_keys:
        resources = resources[key]
    asked: Counter[str] = Counter()
    for group in resources.get("InstanceGroups") or [resources]:
        asked[group["InstanceType"]] += group["InstanceCount"]
    return asked


def quota_name(instance_type: str, api: JobApi, is_spot: bool) -> str:
    """Return how Service Quotas, and a refusal, call a quota: ``ml.g5.xlarge for spot training job usage``."""
    return f"{instance_type} for {'spot ' if is_spot else ''}{api.kind} job usage"


class Stock:
    """What the regions have; every method may be called from any thread."""

    def __init__(self, scenario: Scenario, records: Records, clock: Clock) -> None:
        """Have what ``scenario`` says."""
        self._scenario = scenario
        self._records = records
        self._clock = clock
        self._began_s = clock.now()
        self._lock = threading.Lock()
        self._taken: dict[str, Counter[str]] = {}

    def take(self, record: JobRecord) -> bool:
        """Give a job its instances; return whether there were enough. Give them back in any case where there were."""
        capacity = self._scenario.of(record.region).capacity
        if within(capacity.gone, self._clock.now() - self._began_s):
            return False
        asked = asked_instances(record.api, record.request)
        with self._lock:
            taken = self._taken.setdefault(record.region, Counter())
            # All or none: a job that held half a cluster would keep others from theirs, and never run.
            if any(taken[name] + asked[name] > most for name, most in capacity.instances.items()):
                return False
            taken.update(asked)
        return True

    def give_back(self, record: JobRecord) -> None:
        """Take back what a job had."""
        with self._lock:
            self._taken[record.region].subtract(asked_instances(record.api, record.request))

    def check_quota(self, api: JobApi, request: Mapping[str, Any], region: str) -> None:
        """Refuse a request that asks for more than the account may have.

        Raises:
            ApiError: ResourceLimitExceeded, in AWS's words.
        """
        is_spot = bool(request.get("EnableManagedSpotTraining"))
        market = self._scenario.of(region).market
        quotas = market.spot_quotas if is_spot else market.quotas
        # Counted only where there is a limit: it takes a look at every job.
        if not quotas:
            return
        asked = asked_instances(api, request)
        # Of a Counter & takes the lesser numbers: left are the types that are asked for and have a quota.
        for name in asked & Counter(dict.fromkeys(quotas, 10**9)):
            used = self._used(api, region, name, is_spot)
            if used + asked[name] > quotas[name]:
                raise ApiError(
                    "ResourceLimitExceeded",
                    f"The account-level service limit '{quota_name(name, api, is_spot)}' is {quotas[name]} Instances, "
                    f"with current utilization of {used} Instances and a request delta of {asked[name]} Instances. "
                    "Please use AWS Service Quotas to request an increase for this quota.",
                )

    def _used(self, api: JobApi, region: str, instance_type: str, is_spot: bool) -> int:
        return sum(
            asked_instances(api, record.request)[instance_type]
            for record in self._records.all(api, region)
            if not record.final and bool(record.request.get("EnableManagedSpotTraining")) is is_spot
        )
