"""The instances that a region has, and may give to an account: jobs flow in, what refuses them flows out.

Two limits, as on AWS: the quota refuses a request before there is a job; capacity is missing when the job is to start.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from raysm.contract.home import Clock
from raysm.contract.job_api import JobApi, preferred, selected, settled
from raysm.local.scenario import Scenario
from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord, Records
from raysm.local.shares import within

__all__ = ["Stock", "asked_instances", "quota_name"]


def asked_instances(api: JobApi, request: Mapping[str, Any]) -> Counter[str]:
    """Return how many instances of each type a request asks for; of a choice those that were chosen, or come first."""
    resources = _resources(api, request)
    counts: Counter[str] = Counter()
    for group in resources.get("InstanceGroups") or [settled(resources)]:
        counts[group["InstanceType"]] += group["InstanceCount"]
    return counts


def _resources(api: JobApi, request: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in api.cluster_keys:
        request = request[key]
    return request


def _choices(api: JobApi, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the request as it is with each type that it prefers, in their order; itself where there is no choice."""
    resources = _resources(api, request)
    if not preferred(resources):
        yield request
    for name, count in preferred(resources):
        yield {**request, "ResourceConfig": selected(resources, name, count)}


def _is_spot(request: Mapping[str, Any]) -> bool:
    return bool(request.get("EnableManagedSpotTraining"))


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
        self._interruptions: dict[str, Random] = {}
        # Of each region, at which words nobody has lost its instances yet.
        self._words: dict[str, list[str]] = {}
        # What each job has: of a choice that is not what its request says first.
        self._held: dict[tuple[str, JobApi, str], Counter[str]] = {}

    def interruptions(self, region: str) -> Random:
        """Return what the moments are drawn from at which a region takes instances back, one after the other."""
        seed = self._scenario.seed
        with self._lock:
            drawn = Random(None if seed is None else f"{seed}/{region}/interruptions")
            return self._interruptions.setdefault(region, drawn)

    def interrupts(self, region: str, line: str) -> bool:
        """Whether a region takes its instances back from who has written this line: once for each of its words."""
        words = self._scenario.of(region).capacity.interrupted_at
        if not words:
            return False
        with self._lock:
            left = self._words.setdefault(region, list(words))
            word = next((each for each in left if each in line), None)
            if word is not None:
                left.remove(word)
        return word is not None

    def take(self, record: JobRecord) -> bool:
        """Give a job its instances; return whether there were enough. Give them back in any case where there were."""
        capacity = self._scenario.of(record.region).capacity
        if within(capacity.gone, self._clock.now() - self._began_s):
            return False
        for request in _choices(record.api, record.request):
            if self._take(record, asked_instances(record.api, request), capacity.instances):
                if request is not record.request:
                    self._records.update(record.api, record.name, record.region, request=request)
                return True
        return False

    def _take(self, record: JobRecord, counts: Counter[str], there: Mapping[str, int]) -> bool:
        with self._lock:
            in_use = self._taken.setdefault(record.region, Counter())
            # All or none: a job that held half a cluster would keep others from theirs, and never run.
            if any(in_use[name] + counts[name] > most for name, most in there.items()):
                return False
            in_use.update(counts)
            self._held[record.region, record.api, record.name] = counts
        return True

    def give_back(self, record: JobRecord) -> None:
        """Take back what a job had."""
        with self._lock:
            self._taken[record.region].subtract(self._held.pop((record.region, record.api, record.name)))

    def spot_saving(self, request: Mapping[str, Any], region: str) -> float:
        """Return the share of a job's time that is not billed."""
        return self._scenario.of(region).market.spot_saving if _is_spot(request) else 0.0

    def check_quota(self, api: JobApi, request: Mapping[str, Any], region: str) -> None:
        """Refuse a request that asks for more than the account may have.

        Raises:
            ApiError: ResourceLimitExceeded, in AWS's words.
        """
        is_spot = _is_spot(request)
        market = self._scenario.of(region).market
        quotas = market.spot_quotas if is_spot else market.quotas
        # Counted only where there is a limit: it takes a look at every job.
        if not quotas:
            return
        refusals = []
        for choice in _choices(api, request):
            try:
                self._check_quota(api, choice, region, quotas)
                return
            except ApiError as error:
                refusals.append(error)
        # Of a choice the one that is wanted most.
        raise refusals[0]

    def _check_quota(self, api: JobApi, request: Mapping[str, Any], region: str, quotas: Mapping[str, int]) -> None:
        is_spot = _is_spot(request)
        counts = asked_instances(api, request)
        # Of a Counter & takes the lesser numbers: left are the types that are asked for and have a quota.
        for name in counts & Counter(dict.fromkeys(quotas, 10**9)):
            used = self._used(api, region, name, is_spot)
            if used + counts[name] > quotas[name]:
                raise ApiError(
                    "ResourceLimitExceeded",
                    f"The account-level service limit '{quota_name(name, api, is_spot)}' is {quotas[name]} Instances, "
                    f"with current utilization of {used} Instances and a request delta of {counts[name]} Instances. "
                    "Please use AWS Service Quotas to request an increase for this quota.",
                )

    def _used(self, api: JobApi, region: str, instance_type: str, is_spot: bool) -> int:
        return sum(
            asked_instances(api, record.request)[instance_type]
            for record in self._records.all(api, region)
            if not record.final and _is_spot(record.request) is is_spot
        )
