"""A grid of campaigns over four regions as it ends, under a clock of its own: what its views are looked at with."""

from dataclasses import replace
from itertools import chain

from raysm.features.grid.market import Offer, Place
from raysm.features.grid.placement import Placement
from raysm.features.grid.row import STATES_BY_URGENCY, Row
from raysm.features.grid.row_view import row_views
from raysm.features.grid.rules import Rules
from raysm.features.grid.snapshot import snapshot
from raysm.features.grid.views.report import report_page
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench

TYPE = "ml.p4d.24xlarge"
TYPO = "AlgorithmError: ExecuteUserScriptError: exit code: 1, ValueError: could not convert string to float: '0,05' <b>"

REGIONS = {
    "us-east-1": Behaviour(start_s=240, run_s=1500, spread=0.3, usd_per_hour=28.15, speed=6_000.0),
    "us-west-2": Behaviour(start_s=300, run_s=1500, spread=0.3, usd_per_hour=24.10, speed=6_100.0),
    # Spare capacity, of which a third of the time was not billed.
    "eu-west-1": Behaviour(
        start_s=200, run_s=1500, spread=0.3, usd_per_hour=30.20, billed=0.66, speed=5_900.0
    ),
    # Out of capacity from the first job on.
    "eu-central-1": Behaviour(start_s=60, usd_per_hour=18.00, capacity=0),
}


def ended(folder, rows=12, *, midway=False, **fields):
    """Return a grid of campaigns, one with a typo, at its end or ``midway``; ``fields`` are the bench's."""
    homes = list(REGIONS)
    campaigns = [
        # Data that are dear to move stay at home; those of the region without capacity are few, and
        # go elsewhere.
        Row(
            key=f"campaign-{number:03}",
            position=number,
            region=homes[number % 4],
            max_runtime_s=7200,
            input_bytes=10**9 if number % 4 == 3 else 10**12,
        )
        for number in range(rows)
    ]
    regions = {
        name: _with(behaviour, campaigns[rows // 2].key) for name, behaviour in REGIONS.items()
    }
    rules = Rules(
        brake=0, retries=1, parallel=max(8, rows // 4), max_cost=100.0 * rows, rate="images_per_s"
    )
    offers = [
        Offer(
            place=Place(region=name, instance_type=TYPE, spot=each.billed < 1),
            usd_per_hour=each.usd_per_hour,
        )
        for name, each in regions.items()
    ]
    placement = Placement(
        offers=[replace(offer, price_version="made-1") for offer in offers], move_data=True
    )
    bench = Bench(
        folder, rows=campaigns, regions=regions, rules=rules, placement=placement, **fields
    )
    bench.store.note_plan((11.0 * rows, 16.5 * rows))
    if midway:
        while len(bench.store.attempts.ends_after(0)) < rows // 2:
            bench.step()
    else:
        bench.run()
    return bench


def _with(behaviour, typo):
    return Behaviour(**{**vars(behaviour), "fails": {typo: TYPO}})


def page_of(bench):
    """Return the grid's report."""
    rows = chain.from_iterable(row_views(bench.store, state) for state in STATES_BY_URGENCY)
    return report_page(snapshot(bench.store, bench.clock.now), rows)
