"""Choose a place for a row by the cost of its instances, the cost of moving its data, and the wait.

The row takes the cheapest place that takes it now, or waits if a better place is worth the wait. An
unknown cost never counts as 0: places without a price come after all places with one.
"""

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from raysm.core.client.costs.prices import PriceTable
from raysm.core.protocol.service_model import knows_preferences
from raysm.core.request.cluster import MAX_TYPES
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.endings import EndingName
from raysm.features.grid.market import (
    NO_PRICE,
    OUTPACED,
    OUTPACED_S,
    Decision,
    Market,
    Offer,
    Outlook,
    Place,
    place_of,
)
from raysm.features.grid.row import UNKNOWN_S, Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store

LATEST = 32
"""Number of latest values in a median: prices and queues change within days."""

WAIT_S = 240.0
"""Assumed seconds from Create to the start of the instances: users report 3 to 4 minutes."""

SPOT_FACTOR = 0.5
"""Assumed part of its time for which spot capacity is billed."""

SPOT_RANGE = (0.1, 1.0)
"""The same at best and at worst: AWS names savings of "up to 90 %", and
publishes no prices.
https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html"""


class Estimates:
    """Medians of durations, waits and billed time of a grid's own jobs.

    Medians rather than means, so that one job that hung has no effect.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(_latest)
        self._factors: defaultdict[str, deque[float]] = defaultdict(_latest)
        self._waits: defaultdict[Place, deque[float]] = defaultdict(_latest)
        self._all_waits = _latest()
        self._billed: defaultdict[tuple[str, str], deque[float]] = defaultdict(_latest)

    def learn(self, row: Row, attempt: Attempt) -> None:
        if attempt.waited_s is not None:
            for waits in (self._waits[place_of(attempt)], self._all_waits):
                waits.append(attempt.waited_s)
        if attempt.training_s and attempt.ending == EndingName.OK:
            self._seconds[attempt.instance_type].append(attempt.training_s)
            # Relative to the row's own estimate: a type that happened to get long rows is not
            # slower.
            if row.expected_s:
                self._factors[attempt.instance_type].append(attempt.training_s / row.expected_s)
        if attempt.spot and attempt.training_s and attempt.billable_s is not None:
            self._billed[attempt.region, attempt.instance_type].append(
                attempt.billable_s / attempt.training_s
            )

    def samples(self, instance_type: str) -> int:
        return len(self._seconds.get(instance_type, ()))

    def seconds(self, row: Row, instance_type: str) -> float | None:
        factor = _median(self._factors.get(instance_type))
        if row.expected_s is not None:
            return row.expected_s if factor is None else factor * row.expected_s
        return _median(self._seconds.get(instance_type))

    def wait_s(self, place: Place) -> float:
        # For an untried place the median of all others, so that no guess decides against it.
        median = _median(self._waits.get(place) or self._all_waits)
        return WAIT_S if median is None else median

    def billed_factor(self, place: Place) -> float:
        if not place.spot:
            return 1.0
        median = _median(self._billed.get((place.region, place.instance_type)))
        return SPOT_FACTOR if median is None else median

    def billed_range(self, place: Place) -> tuple[float, float]:
        if not place.spot:
            return 1.0, 1.0
        billed = self._billed.get((place.region, place.instance_type))
        return (min(billed), max(billed)) if billed else SPOT_RANGE


def _latest() -> "deque[float]":
    return deque(maxlen=LATEST)


def _median(values: "deque[float] | None") -> float | None:
    return statistics.median(values) if values else None


FORECAST_ROWS = 500
"""Most waiting rows, and open jobs, for which the end of a grid is predicted: each step reads all
of them."""


class Forecast:
    def __init__(self) -> None:
        self._seconds: defaultdict[Place, deque[float]] = defaultdict(_latest)

    def learn(self, row: Row, attempt: Attempt) -> None:
        if (
            attempt.ending == EndingName.OK
            and attempt.sent_s is not None
            and attempt.ended_s is not None
        ):
            self._seconds[place_of(attempt)].append((attempt.ended_s - attempt.sent_s) / row.work)

    def outlook(self, store: Store, now: float) -> Outlook:
        """Return the outlook for the last rows; it is empty before, and with one known place."""
        waiting = store.rows.waiting_count(FORECAST_ROWS + 1) if len(self._seconds) > 1 else 0
        if not 0 < waiting <= FORECAST_ROWS or store.attempts.open_count() > FORECAST_ROWS:
            return Outlook()
        takes_s = {place: statistics.median(seconds) for place, seconds in self._seconds.items()}
        free_s: defaultdict[Place, list[float]] = defaultdict(list)
        for region, instance_type, spot, began_s, expected_s in store.attempts.open_work():
            place = Place(region=region, instance_type=instance_type, spot=bool(spot))
            if place in takes_s:
                ends_s = began_s + takes_s[place] * (expected_s or UNKNOWN_S)
                # A late job is expected to be late as long again: one that hangs must not keep rows
                # waiting forever.
                free_s[place].append(ends_s if ends_s > now else now + (now - ends_s))
        return Outlook(waiting=waiting, takes_s=takes_s, free_s=free_s)


# -- prices of moving data, as of November 2026

GB = 1e9

RATE = 0.02
NEAR = frozenset({"us-east-1", "us-east-2"})
NEAR_RATE = 0.01
PRICED = ("us-", "ca-", "eu-")
"""Prefixes of the regions whose rate is known, except GovCloud, which is another partition."""


def usd_per_gb(source: str, target: str) -> float | None:
    if source == target:
        return 0.0
    if {source, target} == NEAR:
        return NEAR_RATE
    return RATE if source.startswith(PRICED) and "-gov-" not in source else None


def transfer_usd(source: str | None, target: str, size_bytes: int | None) -> float | None:
    """Return the price of moving data; None if size or rate is unknown, 0 if ``source`` is None."""
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
    volume_gb: int = 0,
    markets: Sequence[bool] = (False,),
) -> list[Offer]:
    offers = []
    for instance_type in dict.fromkeys(instance_types):
        for region in dict.fromkeys(regions):
            price = table.price(instance_type, region)
            # As in a job's own cost, an unknown price of the volume counts nothing.
            volume = table.volume_usd_per_hour(instance_type, volume_gb, region) or 0.0
            usd, version = (
                (None, "") if price is None else (price.usd_per_hour + volume, price.version)
            )
            for spot in markets:
                place = Place(region=region, instance_type=instance_type, spot=spot)
                offers.append(
                    Offer(place=place, count=count, usd_per_hour=usd, price_version=version)
                )
    return offers


WAITING_USD_PER_HOUR = 1.0
"""Price of an hour of waiting: a row does not wait until tomorrow to save a dollar."""

OPTIMISM = 0.9
"""Assumed cost of an untried type, as a part of the best type's: below 1, so that it is tried."""

PRICED_S = 3600.0
"""Seconds for which a place with a price that refuses is preferred to a place without a price.
After that, its wait is as unknown as the other's price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Worth:
    """Cost and duration of a row in a place. None means unknown."""

    usd: float | None
    transfer_usd: float | None
    wait_s: float
    seconds: float | None

    def score(self, waiting_usd_per_hour: float) -> tuple[int, float]:
        """Return the key for comparing places.

        It is the number of unknown parts, then the known cost including the wait.
        """
        unknown = sum(part is None for part in (self.usd, self.transfer_usd))
        return unknown, self.known_usd + self.wait_s * waiting_usd_per_hour / 3600

    @property
    def known_usd(self) -> float:
        return (self.usd or 0.0) + (self.transfer_usd or 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRate:
    """Cost of a place apart from a row's duration, for all rows of a shape. None means unknown."""

    usd_per_s: float | None
    transfer_usd: float | None
    wait_s: float

    def worth(self, seconds: float | None, delay_s: float = 0.0) -> Worth:
        """Return the worth for a row that runs for ``seconds`` and is sent after ``delay_s``."""
        assumed_s = UNKNOWN_S if seconds is None else seconds
        usd = None if self.usd_per_s is None else self.usd_per_s * assumed_s
        wait_s = self.wait_s + delay_s
        return Worth(usd=usd, transfer_usd=self.transfer_usd, wait_s=wait_s, seconds=seconds)


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class _Candidate:
    """An offer that a row may take, now or later; compared by score, then by the user's order."""

    score: tuple[int, float]
    position: int
    until: float | None = field(compare=False)
    offer: Offer = field(compare=False)
    usd: float = field(compare=False)

    @property
    def unknown(self) -> int:
        return self.score[0]


@dataclass(kw_only=True)
class Placement:
    offers: Sequence[Offer]
    move_data: bool = False
    any_type: bool = False
    """True if the service chooses among several types; on demand only."""
    waiting_usd_per_hour: float = WAITING_USD_PER_HOUR
    estimates: Estimates = field(default_factory=Estimates)

    def choose(self, row: Row, attempts: Sequence[Attempt], market: Market, now: float) -> Decision:
        reasons: dict[str, str] = {}
        candidates: list[_Candidate] = []
        for position, offer in enumerate(self.offers):
            why = NO_PRICE if offer.usd_per_hour is None and market.needs_price else None
            why = why or why_unfit(row, offer, self.move_data)
            barred = None if why else market.bars(offer.place, row.count or offer.count, now)
            until, why = barred if barred is not None else (None, why)
            if why:
                reasons[str(offer.place)] = why
            if why and until is None:
                continue
            # The time until the place takes a job is part of the wait.
            delay_s = (
                0.0 if until is None else max(until - now, self._turnover(row, offer, market, now))
            )
            worth = self.worth(row, offer, delay_s)
            score = worth.score(self.waiting_usd_per_hour)
            usd = worth.known_usd
            candidates.append(
                _Candidate(score=score, position=position, until=until, offer=offer, usd=usd)
            )
        return (
            self._best(row, candidates, market, now, reasons)
            if candidates
            else Decision(reasons=reasons)
        )

    def companions(self, row: Row, offer: Offer) -> tuple[Offer, ...]:
        """Return the offers that the service may choose from if a row is sent to ``offer``.

        ``offer`` comes first.
        """
        if not self.any_type or offer.place.spot:
            return (offer,)
        there = [
            each
            for each in self.offers
            if each.place.region == offer.place.region and not each.place.spot
        ]
        others = [
            each
            for each in there
            if each.place != offer.place and not why_unfit(row, each, self.move_data)
        ]
        return (offer, *others)

    def learn(self, row: Row, attempt: Attempt) -> None:
        self.estimates.learn(row, attempt)

    def worth(self, row: Row, offer: Offer, delay_s: float = 0.0) -> Worth:
        return self.rate(row, offer).worth(self.seconds(row, offer), delay_s)

    def rate(self, row: Row, offer: Offer) -> CostRate:
        place = offer.place
        count = row.count or offer.count
        factor = self.estimates.billed_factor(place)
        return CostRate(
            usd_per_s=None
            if offer.usd_per_hour is None
            else offer.usd_per_hour * count * factor / 3600,
            transfer_usd=transfer_usd(row.region, place.region, row.input_bytes),
            wait_s=self.estimates.wait_s(place),
        )

    def seconds(self, row: Row, offer: Offer) -> float | None:
        """Return how long the row will take.

        For an untried type this is an optimistic guess, so that it is tried.
        """
        name = offer.place.instance_type
        if self.estimates.samples(name) or not offer.usd_per_hour:
            return self.estimates.seconds(row, name)
        offers = [(each.usd_per_hour, each.place.instance_type) for each in self.offers]
        priced = [(usd, other) for usd, other in offers if usd and self.estimates.samples(other)]
        if not priced:
            return self.estimates.seconds(row, name)
        # Assume that a machine of twice the price is twice as fast; otherwise expensive ones would
        # never be tried.
        costs = [usd * (self.estimates.seconds(row, other) or 0.0) for usd, other in priced]
        return OPTIMISM * min(costs) / offer.usd_per_hour

    def _turnover(self, row: Row, offer: Offer, market: Market, now: float) -> float:
        """Estimate the seconds until a place that takes no job has room again."""
        place = offer.place
        seconds = self.seconds(row, offer)
        quota = market.quotas.get(place)
        refused_s = market.refused_s(place, now)
        if quota is None or seconds is None:
            return refused_s
        # In a full quota, rows end at intervals of their duration divided by the number of slots.
        return max(refused_s, seconds / max(1, quota.limit // (row.count or offer.count)))

    def _best(
        self,
        row: Row,
        candidates: list[_Candidate],
        market: Market,
        now: float,
        reasons: Mapping[str, str],
    ) -> Decision:
        first = best = min(candidates)
        if first.until is None:
            # Only places that cost no more are compared by speed: waiting_usd_per_hour already
            # prices time.
            alike = [
                each
                for each in sorted(candidates)
                if each.usd <= first.usd and each.unknown == first.unknown
            ]
            places = [each.offer.place for each in alike]
            ready = (each for each in alike if each.until is None)
            soonest = next(
                (each for each in ready if not market.outpaces(places, each.offer.place, row, now)),
                None,
            )
            if soonest is None:
                return Decision(
                    ask_at_s=now + OUTPACED_S, reasons={**reasons, str(first.offer.place): OUTPACED}
                )
            best = soonest
        free = [each for each in candidates if each.until is None]
        if (
            free
            and market.refused_s(best.offer.place, now) > PRICED_S
            and min(free).unknown > best.unknown
        ):
            best = min(free)
        if best.until is not None:
            # The places that would take the row at once cost more than waiting for the best place.
            return Decision(
                ask_at_s=min(each.until for each in candidates if each.until is not None),
                stuck=market.stuck([each.offer.place for each in candidates]),
                reasons=reasons,
            )
        place = best.offer.place
        others = list[Offer]()
        if self.any_type and not place.spot:
            there = [each.offer for each in sorted(free) if each.offer.place.region == place.region]
            others = [offer for offer in there if offer.place != place and not offer.place.spot][
                : MAX_TYPES - 1
            ]
        return Decision(offer=replace(best.offer, alternatives=tuple(others)), reasons=reasons)


def placement_of(rules: Rules, offers: Sequence[Offer]) -> Placement:
    return Placement(
        offers=offers, move_data=rules.move_data, any_type=rules.any_type and knows_preferences()
    )


def why_unfit(row: Row, offer: Offer, move_data: bool) -> str | None:
    place = offer.place
    if row.region not in (None, place.region) and not move_data:
        return f"its data are in {row.region}, and --move-data (move_data=True) is not given"
    if row.instance_types and place.instance_type not in row.instance_types:
        return f"the row asks for {', '.join(row.instance_types)}"
    if row.spot not in (None, place.spot):
        return f"the row says spot={row.spot}"
    assert math.isfinite(offer.usd_per_hour or 0.0), "a list has no such price"
    return None
