"""A placement for tests of the controller: the first place that takes a row, in the order given."""

from dataclasses import dataclass

from raysm.grid.place import NO_PRICE, OUTPACED, OUTPACED_S, Choice


@dataclass(frozen=True, slots=True)
class FirstAdmitted:
    """A placement that takes the first offer whose place takes the job: tests of the controller need no prices."""

    offers: list

    def choose(self, task, attempts, market, now):
        """Return the first offer that is open, and that the row's own columns admit."""
        refusals = {offer.place: _refusal(task, offer, market) for offer in self.offers}
        reasons = {str(place): why for place, why in refusals.items() if why}
        admitted = [place for place, why in refusals.items() if not why]
        waits = {}
        for offer in self.offers:
            place = offer.place
            if refusals[place]:
                continue
            if market.outpaces(admitted, place, task, now):
                reasons[str(place)], waits[place] = OUTPACED, now + OUTPACED_S
            elif barred := market.bars(place, task.count or offer.count, now):
                until, reasons[str(place)] = barred
                waits |= {} if until is None else {place: until}
            else:
                return Choice(offer=offer, reasons=reasons)
        return Choice(again_s=min(waits.values(), default=None), stuck=market.stuck(waits), reasons=reasons)

    def learn(self, task, attempt):
        """Learn nothing: the order was given."""


def _refusal(task, offer, market):
    place = offer.place
    if task.region not in (None, place.region):
        return f"its data are in {task.region}"
    if task.instance_types and place.instance_type not in task.instance_types:
        return f"the row asks for {', '.join(task.instance_types)}"
    if task.spot not in (None, place.spot):
        return f"the row says spot={task.spot}"
    return NO_PRICE if offer.usd_per_hour is None and market.needs_price else None
