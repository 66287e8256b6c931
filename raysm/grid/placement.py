"""Where a row runs: by the dollars of its instances and of moving its data, and by how long it will wait.

Pure. The cheapest place that takes the row now is chosen, or none for a while if waiting for a better one pays. What is
unknown is never 0: a place without a price comes after every place with one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from raysm.client.costs.prices import PriceTable
from raysm.contract.service_model import knows_preferences
from raysm.grid.attempt import Attempt
from raysm.grid.estimates import Estimates
from raysm.grid.place import NO_PRICE, OUTPACED, OUTPACED_S, Choice, Market, Offer, Place
from raysm.grid.rules import Rules
from raysm.grid.task import UNKNOWN_S, Task
from raysm.request.cluster import MAX_TYPES

__all__ = [
    "AS_OF",
    "Cheapest",
    "Rate",
    "WAITING_USD_PER_HOUR",
    "Worth",
    "offers_of",
    "placement_of",
    "refusal",
    "transfer_usd",
    "usd_per_gb",
]

AS_OF = "2026-11"
"""When the rates below were so."""

GB = 1e9
"""AWS bills by 10^9 bytes here, as it does for what goes to the internet."""

NEAR = frozenset({"us-east-1", "us-east-2"})
"""Virginia and Ohio send each other for half of it."""

RATE = 0.02
NEAR_RATE = 0.01
PRICED = ("us-", "ca-", "eu-")
"""How the names of regions begin whose rate is known; GovCloud's, which begin so too, are another partition."""


def usd_per_gb(source: str, target: str) -> float | None:
    """Return what a GB costs from one region to another; 0 within one, None where it is not known."""
    if source == target:
        return 0.0
    if {source, target} == NEAR:
        return NEAR_RATE
    return RATE if source.startswith(PRICED) and "-gov-" not in source else None


def transfer_usd(source: str | None, target: str, size_bytes: int | None) -> float | None:
    """Return what data cost on their way; None where size or rate is not known.

    Args:
        source: Where they lie; None is anywhere, so that nothing is moved.
        target: Where they are read.
        size_bytes: Of them all; None is unknown.
    """
    if source is None or source == target:
        return 0.0
    rate = usd_per_gb(source, target)
    return None if rate is None or size_bytes is None else rate * size_bytes / GB


def offers_of(
    regions: Sequence[str],
    instance_types: Sequence[str],
    table: PriceTable,
    *,
    count: int = 1,
    markets: Sequence[bool] = (False,),
) -> list[Offer]:
    """Return an offer for each region, type and market, in the order of the user's preference.

    Args:
        regions: The best first.
        instance_types: The best first; a type comes before a region, as one that fits less well costs every row.
        table: Prices; what it does not know has none.
        count: Instances of a job, where the row does not say.
        markets: Whether spare capacity is used: False, True, or both.
    """
    offers = []
    for instance_type in dict.fromkeys(instance_types):
        for region in dict.fromkeys(regions):
            price = table.price(instance_type, region)
            for spot in markets:
                place = Place(region=region, instance_type=instance_type, spot=spot)
                offers.append(
                    Offer(
                        place=place,
                        count=count,
                        usd_per_hour=None if price is None else price.usd_per_hour,
                        price_version="" if price is None else price.version,
                    )
                )
    return offers


WAITING_USD_PER_HOUR = 1.0
"""What an hour of waiting is worth to a row: so much that a dollar less is no reason to wait until tomorrow."""

OPTIMISM = 0.9
"""Of the best type's cost, what one that is not known is believed to cost: enough to be tried, and soon found out."""

PRICED_S = 3600.0
"""Seconds for which a place that refuses, and has a price, is waited for rather than to take one without: its wait is
then as little known as the other's price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Worth:
    """What a place costs a row, in dollars."""

    usd: float | None
    """Of its instances, as they will be billed; None is unknown."""
    transfer_usd: float | None
    """Of its data on their way; None is unknown."""
    wait_s: float
    """Seconds until its instances start."""
    seconds: float | None
    """That it will run; None is unknown."""

    def score(self, waiting_usd_per_hour: float) -> tuple[int, float]:
        """Return what places are compared by: how much of it is unknown, and then the dollars."""
        # How much is unknown first: among two such places the known part decides.
        unknown = sum(part is None for part in (self.usd, self.transfer_usd))
        return unknown, self.known_usd + self.wait_s * waiting_usd_per_hour / 3600

    @property
    def known_usd(self) -> float:
        """What is known of the dollars."""
        return (self.usd or 0.0) + (self.transfer_usd or 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """What a place costs a row but for the time that it runs: the same for all rows of its shape."""

    usd_per_s: float | None
    """Of its instances, as they will be billed; None is unknown."""
    transfer_usd: float | None
    """Of its data on their way; None is unknown."""
    wait_s: float
    """Seconds until its instances start."""

    def worth(self, seconds: float | None, delay_s: float = 0.0) -> Worth:
        """Return what the place costs a row that runs for ``seconds``, and is sent after ``delay_s``."""
        # An hour, where nobody says: so places still compare by their prices.
        assumed_s = UNKNOWN_S if seconds is None else seconds
        return Worth(
            usd=None if self.usd_per_s is None else self.usd_per_s * assumed_s,
            transfer_usd=self.transfer_usd,
            wait_s=self.wait_s + delay_s,
            seconds=seconds,
        )


@dataclass(kw_only=True)
class Cheapest:
    """The placement of a grid that knows prices; it is a ``Placement``."""

    offers: Sequence[Offer]
    """All places, the user's favorite first."""
    move_data: bool = False
    """Whether a row may run away from its data."""
    any_type: bool = False
    """Whether the service itself takes the next type where the region has none of the best; on demand alone."""
    waiting_usd_per_hour: float = WAITING_USD_PER_HOUR
    """What an hour of waiting is worth."""
    estimates: Estimates = field(default_factory=Estimates)
    """What was learned."""
    lacks: Callable[[Task, str], str | None] = lambda task, region: None
    """Says why a row cannot run in a region for what is missing there, its image for example; None is nothing."""

    def choose(self, task: Task, attempts: Sequence[Attempt], market: Market, now: float) -> Choice:
        """Return where ``task`` goes now; see ``Placement``."""
        reasons: dict[str, str] = {}
        ways: list[_Way] = []
        for position, offer in enumerate(self.offers):
            why = self._refusal(task, offer, market)
            barred = None if why else market.bars(offer.place, task.count or offer.count, now)
            until = None
            if barred is not None:
                until, why = barred
            if why:
                reasons[str(offer.place)] = why
            if why and until is None:
                continue
            # As long as a place takes nobody, that is part of the wait.
            delay_s = 0.0 if until is None else max(until - now, self._turnover(task, offer, market, now))
            worth = self.worth(task, offer, delay_s)
            score, usd = worth.score(self.waiting_usd_per_hour), worth.known_usd
            ways.append(_Way(score=score, position=position, until=until, offer=offer, usd=usd))
        return self._best(task, ways, market, now, reasons) if ways else Choice(reasons=reasons)

    def companions(self, task: Task, offer: Offer) -> tuple[Offer, ...]:
        """Return which offers the service may take for a row that is sent to one of them, that one first."""
        if not self.any_type or offer.place.spot:
            return (offer,)
        there = [each for each in self.offers if each.place.region == offer.place.region and not each.place.spot]
        others = [each for each in there if each.place != offer.place and not refusal(task, each, self.move_data)]
        return (offer, *others)

    def learn(self, task: Task, attempt: Attempt) -> None:
        """Take note of an attempt that has ended."""
        self.estimates.learn(task, attempt)

    def worth(self, task: Task, offer: Offer, delay_s: float = 0.0) -> Worth:
        """Return what a place costs a row.

        Args:
            task: The row.
            offer: The place.
            delay_s: Seconds before it can even be sent there.
        """
        return self.rate(task, offer).worth(self.seconds(task, offer), delay_s)

    def rate(self, task: Task, offer: Offer) -> Rate:
        """Return what a place costs a row but for its time."""
        place, count = offer.place, task.count or offer.count
        factor = self.estimates.billed_factor(place)
        return Rate(
            usd_per_s=None if offer.usd_per_hour is None else offer.usd_per_hour * count * factor / 3600,
            transfer_usd=transfer_usd(task.region, place.region, task.input_bytes),
            wait_s=self.estimates.wait_s(place),
        )

    def seconds(self, task: Task, offer: Offer) -> float | None:
        """Return how long the row will take; of a type that nobody knows yet, long enough to be worth a try."""
        name = offer.place.instance_type
        if self.estimates.samples(name):
            return self.estimates.seconds(task, name)
        priced = [
            (each.usd_per_hour, each.place.instance_type)
            for each in self.offers
            if each.usd_per_hour and self.estimates.samples(each.place.instance_type)
        ]
        if not priced or not offer.usd_per_hour:
            return self.estimates.seconds(task, name)
        # A machine of twice the price is believed to be twice as fast: else the dear ones would never be tried.
        costs = [usd * (self.estimates.seconds(task, other) or 0.0) for usd, other in priced]
        return OPTIMISM * min(costs) / offer.usd_per_hour

    def _refusal(self, task: Task, offer: Offer, market: Market) -> str | None:
        if offer.usd_per_hour is None and market.needs_price:
            return NO_PRICE
        return refusal(task, offer, self.move_data) or self.lacks(task, offer.place.region)

    def _turnover(self, task: Task, offer: Offer, market: Market, now: float) -> float:
        """Return about how long it takes until a place that takes nobody has room again."""
        place, seconds = offer.place, self.seconds(task, offer)
        quota = market.quotas.get(place)
        refused_s = market.refused_s(place, now)
        if quota is None or seconds is None:
            return refused_s
        # Of a full quota a slot becomes free, on the mean, as often as rows end there.
        return max(refused_s, seconds / max(1, quota.limit // (task.count or offer.count)))

    def _alternatives(self, best: "_Way", open_ways: "list[_Way]") -> tuple[Offer, ...]:
        """Return what else of a place's region takes the row now, the best first."""
        place = best.offer.place
        there = [way.offer for way in sorted(open_ways) if way.offer.place.region == place.region]
        others = [offer for offer in there if offer.place != place and not offer.place.spot]
        return tuple(others[: MAX_TYPES - 1])

    def _best(self, task: Task, ways: "list[_Way]", market: Market, now: float, reasons: Mapping[str, str]) -> Choice:
        # By score, then by the order in which the user named the places: offers themselves do not compare.
        first = best = min(ways)
        if first.until is None:
            # Only for what costs no more: how much an hour is worth is said by waiting_usd_per_hour.
            alike = [way for way in sorted(ways) if way.usd <= first.usd and way.unknown == first.unknown]
            places = [way.offer.place for way in alike]
            unbeaten = (
                way for way in alike if way.until is None and not market.outpaces(places, way.offer.place, task, now)
            )
            # One that outpaces the first may be free itself: nobody else would begin the row there.
            soonest = next(unbeaten, None)
            if soonest is None:
                return Choice(again_s=now + OUTPACED_S, reasons={**reasons, str(first.offer.place): OUTPACED})
            best = soonest
        open_ways = [way for way in ways if way.until is None]
        if open_ways and market.refused_s(best.offer.place, now) > PRICED_S and min(open_ways).unknown > best.unknown:
            best = min(open_ways)
        if best.until is None:
            others = self._alternatives(best, open_ways) if self.any_type and not best.offer.place.spot else ()
            offer = replace(best.offer, expected_s=self.seconds(task, best.offer), alternatives=others)
            return Choice(offer=offer, reasons=reasons)
        # The best one takes nobody now, and what would take the row at once costs more than to wait for it.
        return Choice(
            again_s=min(way.until for way in ways if way.until is not None),
            stuck=market.stuck([way.offer.place for way in ways]),
            reasons=reasons,
        )


def placement_of(rules: Rules, offers: Sequence[Offer]) -> Cheapest:
    """Return the placement of a grid, of these places."""
    return Cheapest(offers=offers, move_data=rules.move_data, any_type=rules.any_type and knows_preferences())


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class _Way:
    """An offer that a row may take, now or later."""

    score: tuple[int, float]
    position: int
    until: float | None = field(compare=False)
    offer: Offer = field(compare=False)
    usd: float = field(compare=False)

    @property
    def unknown(self) -> int:
        return self.score[0]


def refusal(task: Task, offer: Offer, move_data: bool) -> str | None:
    """Return why a row's own columns do not admit a place; None where they do.

    Args:
        task: The row.
        offer: The place.
        move_data: Whether rows may run away from their data.
    """
    place = offer.place
    if task.region not in (None, place.region) and not move_data:
        return f"its data lie in {task.region}, and move_data is not allowed"
    if task.instance_types and place.instance_type not in task.instance_types:
        return f"the row asks for {', '.join(task.instance_types)}"
    if task.spot not in (None, place.spot):
        return f"the row says spot={task.spot}"
    assert math.isfinite(offer.usd_per_hour or 0.0), "a list has no such price"
    return None
