"""A grid at one moment: the sums of a simulated one, and how fast they are of a large one."""

import pytest

from raysm.features.grid.row_view import row_views
from raysm.features.grid.rules import Rules
from raysm.features.grid.snapshot import snapshot
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench

WORDS = "AlgorithmError: exit code: 1"


@pytest.fixture
def bench(tmp_path):
    regions = {
        "us-east-1": Behaviour(usd_per_hour=2.0, fails={"row-3": WORDS}),
        "eu-west-1": Behaviour(usd_per_hour=1.0, fails={"row-3": WORDS}),
    }
    bench = Bench(
        tmp_path,
        rows=20,
        regions=regions,
        rules=Rules(brake=0, retries=0, max_cost=5000, parallel=5),
    )
    yield bench
    bench.store.database.close()


def view(bench):
    return snapshot(bench.store, bench.clock.now)


def test_at_its_end_dollars_reasons_and_the_curve_are_those_of_the_books(bench):
    assert view(bench).is_free
    bench.run()
    end = view(bench)
    assert (end.states, end.left, end.state, end.is_free) == (
        {"done": 19, "failed": 1},
        0,
        "closed",
        False,
    )
    assert end.money.spent_usd == pytest.approx(sum(each.money.spent_usd for each in end.regions))
    assert end.money.wasted_usd > 0
    assert snapshot(bench.store, bench.clock.now + 36_000).done_per_hour == end.done_per_hour
    ((reason, number),) = end.reasons
    assert (number, WORDS.partition(":")[2].strip() in reason) == (1, True)
    counts = [count for _, count in end.done]
    assert counts[:2] == [0, 1]
    assert counts == sorted(counts)
    assert counts[-1] == 19
    assert sum(each.ended.get("OK", 0) for each in end.regions) == 19


def test_reasons_with_the_same_first_line_are_counted_together(bench):
    bench.run()
    execute = bench.store.database.connection.execute
    for number, path in enumerate(("a1", "b2", "c3")):
        where = "UPDATE task SET state = 'failed', reason = ? WHERE position = ?"
        execute(where, (f"KeyError: 'luxx'\nFile \"/jobs/{path}/main.py\"", number))
    assert sorted(count for _, count in view(bench).reasons)[-1] == 3


def test_interruptions_of_spot_capacity_are_counted_by_region_and_by_row_with_what_they_cost_at_most(
    tmp_path,
):
    taken = Behaviour(start_s=60, run_s=600, interrupted_s=200.0, usd_per_hour=6.0)
    bench = Bench(tmp_path, rows=2, regions={"us-east-1": taken}, rules=Rules(brake=0, parallel=1))
    while not view(bench).interruptions:
        bench.step()
    # Told while the job still runs.
    assert [each.reason for each in row_views(bench.store)] == [
        "spot capacity was interrupted once, after 200 s of work: the job started again",
        "",
    ]
    bench.run()
    (region,) = view(bench).regions
    assert (
        region.interruptions,
        view(bench).interruptions,
        view(bench).as_dict()["interruptions"],
    ) == (2, 2, 2)
    assert view(bench).money.again_usd == pytest.approx(2 * 6.0 * 200 / 3600)
    for row in row_views(bench.store):
        assert (row.interruptions, "interrupted once, after 200 s of work" in row.reason) == (
            1,
            True,
        )
    bench.store.database.close()
