"""What an embedded SageMaker's scenario lets a job have: it and the job flow in, findings by region flow out. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from raysm.client.doctor.case import Finding, Intent, bad, good, one_suffices
from raysm.contract.names import LOCAL_REGION
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.request.cluster import LOCAL_TYPE

__all__ = ["look_at_market"]

REMEDY = "take fewer instances, another type or a region that has them, or change the scenario"


def look_at_market(scenario: Scenario, intent: Intent) -> Iterator[Finding]:
    """Yield of each region, and each type, what the scenario says: price, quota, capacity; nothing where it says none.

    Args:
        scenario: Of the home.
        intent: The job; where it names instance types, what it wants is compared.
    """
    # Of the type of no instance there is neither price nor quota: it is this machine's.
    choices = [{name: count for name, count in choice.items() if name != LOCAL_TYPE} for choice in intent.choices]
    is_named = any(choices)
    common = "elsewhere" if scenario.regions else "everywhere"
    home = LOCAL_REGION if LOCAL_REGION in scenario.regions else common
    for region, settings in {**scenario.regions, common: scenario}.items():
        if (settings.market, settings.capacity) == (Market(), Capacity()):
            continue
        named = {
            *settings.market.usd_per_hour,
            *settings.market.quotas,
            *settings.market.spot_quotas,
            *settings.capacity.instances,
        }
        # What a job does not want is left out: a market may have hundreds of types.
        ways = [
            [_of_type(region, settings, name, count, is_spot=intent.limits.spot) for name, count in choice.items()]
            for choice in (choices if is_named else [dict.fromkeys(sorted(named), 0)])
        ]
        for finding in one_suffices(ways):
            # A job goes to its home's region; of the others a grid takes those that have room.
            yield replace(finding, name="market", needed=finding.needed and region == home)
        chances = "; ".join(_chances(settings.capacity))
        if chances:
            # That of a job which could never start stands in its way; all else may happen to it.
            is_closed = settings.capacity.insufficient >= 1 and is_named
            text = f"{region}: {chances}"
            yield replace(bad(text, REMEDY) if is_closed else good(text), name="market", needed=region == home)


def _of_type(region: str, settings: Scenario, name: str, count: int, *, is_spot: bool) -> Finding:
    price, capacity = settings.market.usd_per_hour.get(name), settings.capacity.instances.get(name)
    quotas = {"": settings.market.quotas.get(name), "spot ": settings.market.spot_quotas.get(name)}
    says = [
        "no price" if price is None else f"{price:g} USD/h",
        *(f"{market}quota {quota}" for market, quota in quotas.items() if quota is not None),
        "any number of instances" if capacity is None else f"{capacity} instances",
    ]
    text = f"{region}: {name}, {', '.join(says)}"
    quota = quotas["spot " if is_spot else ""]
    limits: Mapping[str, int | None] = {"quota": quota, "instances there are": capacity}
    short = [what for what, limit in limits.items() if limit is not None and limit < count]
    return bad(f"{text}; the job takes {count}", REMEDY) if short else good(text)


def _chances(capacity: Capacity) -> Iterator[str]:
    if capacity.insufficient:
        yield f"{capacity.insufficient:.0%} of the jobs get no instances"
    if capacity.interruptions_per_hour:
        yield f"a job on spot capacity is interrupted {capacity.interruptions_per_hour:g} times an hour"
    for words in capacity.interrupted_at:
        yield f"a job on spot capacity is interrupted at the line {words!r}"
    if capacity.internal_errors:
        yield f"{capacity.internal_errors:.0%} of the attempts are broken off"
    if capacity.start_delay_s:
        yield f"instances begin after {capacity.start_delay_s:g} s"
