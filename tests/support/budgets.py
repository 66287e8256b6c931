"""Grids under a budget, by chance: prices, lost answers, quotas, failures, and what all of it cost by the books."""

import random

from raysm.features.grid.market import Offer, Place
from raysm.features.grid.placement import Placement
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from tests.support.grid_world import CAPACITY_ERROR, Behaviour, overlaps
from tests.support.grids import TYPE, Bench

USER = "AlgorithmError: RuntimeError: CUDA error, exit code: 1"


def budget_used(folder, seed):
    """Run a grid of eight rows to its end, or until its budget pauses it; return the share of it that was billed."""
    chance, spot = random.Random(seed), random.Random(f"{seed}/spot")
    regions = {
        name: Behaviour(
            usd_per_hour=chance.uniform(0.5, 5),
            run_s=chance.uniform(60, 3_000),
            spread=0.5,
            lost=chance.uniform(0, 0.3),
            late=chance.choice([0, 0.2]),
            billed=chance.uniform(0.3, 1),
            quota=chance.choice([2, 10**9]),
            fails={
                "share:0.3": chance.choice([USER, CAPACITY_ERROR, "InternalServerError: again"])
            },
        )
        for name in ("us-east-1", "eu-west-1")
    }
    budget = chance.uniform(1, 30)
    rows = [Row(key=f"row-{number}", position=number, max_runtime_s=5_400) for number in range(8)]
    offers = []
    for name, region in regions.items():
        # Drawn apart, so that all else of a seed stays as it was without spot capacity.
        place = Place(region=name, instance_type=TYPE, spot=spot.random() < 0.5)
        region.interrupted_s = spot.choice([None, 50.0]) if place.spot else None
        offers.append(Offer(place=place, usd_per_hour=region.usd_per_hour))
    rules = Rules(brake=0, max_cost=budget)
    bench = Bench(
        folder, rows=rows, regions=regions, rules=rules, placement=Placement(offers=offers)
    )
    bench.run()
    bench.judge(ended=False)
    assert overlaps(bench.regions.values()) == []
    bench.store.close()
    return sum(region.usd() for region in bench.regions.values()) / budget
