"""Quotas: whether the account may have as many instances of these types, on spot or not, as the job wants.

What is asked of Service Quotas are the values that apply to the account, and for what it does not list there, AWS's
defaults. A quota counts all jobs of the account, those that run already too, which nobody tells.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good, one_suffices, unknown
from raysm.client.service_quotas import listed_quotas

__all__ = ["Need", "look_at_quotas", "needs_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """How much a job takes of one quota."""

    quota: str
    """The quota's name; its code does not follow from the instance type."""
    amount: float
    """What the job takes: instances, or seconds."""
    is_listed: bool = True
    """Whether every account has a quota of this name; of others nothing is said where they are not there."""
    choice: int | None = None
    """Of the ways to have the instances, of which one suffices, the one that takes it; None is each."""


def needs_of(case: Case) -> Iterator[Need]:
    """Yield the quotas that a job is held to."""
    intent, kind = case.intent, f"{case.api.kind} job"
    capacity = f"spot {kind}" if intent.limits.spot else kind
    for number, choice in enumerate(intent.choices):
        for instance_type, count in choice.items():
            yield Need(quota=f"{instance_type} for {capacity} usage", amount=count, choice=number)
            if intent.cluster is not None and intent.cluster.keep_alive_s:
                # Beside the job's, not in its place: instances that wait in a pool have a quota of their own.
                pool = f"{instance_type} for {case.api.kind} warm pool usage"
                yield Need(quota=pool, amount=count, choice=number)
    total = intent.size
    if total:
        yield Need(quota=f"Number of instances across all {capacity}s", amount=total, is_listed=False)
        yield Need(quota=f"Maximum number of instances per {capacity}", amount=total, is_listed=False)
    yield Need(quota=f"Longest run time for a {kind}", amount=intent.limits.max_runtime_s, is_listed=False)


def look_at_quotas(case: Case) -> Iterator[Finding]:
    """Yield of each quota whether it suffices."""
    if not case.intent.size:
        yield unknown("no instance type was named", "--instance-type TYPE --instances N, or --for job.json")
        return
    if case.intent.cluster is not None and case.intent.cluster.training_plan is not None:
        yield unknown("the capacity of a training plan is reserved: no quota of on-demand instances is asked for")
        return
    needs = list(needs_of(case))
    quotas = _quotas(case, {need.quota for need in needs})
    choices = [
        [finding for need in needs if need.choice == number for finding in _of_need(need, quotas, case.region)]
        for number in range(len(case.intent.choices))
    ]
    yield from one_suffices(choices)
    for need in needs:
        if need.choice is None:
            yield from _of_need(need, quotas, case.region)


def _of_need(need: Need, quotas: Mapping[str, dict[str, Any]], region: str) -> Iterator[Finding]:
    quota = quotas.get(need.quota)
    if quota is not None:
        yield _compared(need, quota, region)
    elif need.is_listed:
        yield unknown(f"Service Quotas lists no quota {need.quota!r} in {region}", "check the instance type")


def _compared(need: Need, quota: dict[str, Any], region: str) -> Finding:
    value = quota["Value"]
    if value >= need.amount:
        return good(f"{need.quota}: {value:.0f}, the job takes {need.amount:.0f}")
    request = (
        "aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code {quota['QuotaCode']} --desired-value {need.amount:.0f} --region {region}"
    )
    return bad(f"{need.quota}: {value:.0f}, the job takes {need.amount:.0f}", request)


def _quotas(case: Case, names: set[str]) -> dict[str, dict[str, Any]]:
    """Return the quotas of these names."""
    quotas: dict[str, dict[str, Any]] = {}
    for quota in listed_quotas(case.service):
        if quota["QuotaName"] in names:
            # What applies to the account comes first, and AWS's default must not replace it.
            quotas.setdefault(quota["QuotaName"], quota)
        # The rest is not read: each instance type has several quotas, a hundred to a page.
        if quotas.keys() == names:
            break
    return quotas
