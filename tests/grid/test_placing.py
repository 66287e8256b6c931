"""Which tasks get a job now."""

from raysm.grid.estimates import Forecast
from raysm.grid.place import Offer, Place
from raysm.grid.placing import Placing, probing
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from tests.support.first_admitted import FirstAdmitted
from tests.support.grid_world import Behaviour
from tests.support.grids import TYPE, Bench


def intended(bench):
    bench.store.database.take_lease("me", bench.clock.now)
    placing = Placing(bench.store, bench.placement, Forecast(), bench.limiter, list(bench.regions), bench.clock.now)
    return placing, [attempt.task for _, attempt in placing.intend()]


def warm(bench):
    """Let the buckets fill."""
    for region in bench.regions:
        bench.limiter.take(region, "create", bench.clock.now)
    bench.clock.now += 60
    return bench


def test_the_more_urgent_and_the_longer_go_first_whatever_their_region(tmp_path):
    tasks = [
        Task(key="short", position=0, region="us-east-1"),
        Task(key="long", position=1, expected_s=600.0, region="eu-west-1"),
        Task(key="urgent", position=2, priority=1),
    ]
    assert intended(warm(Bench(tmp_path, tasks=tasks)))[1] == ["urgent", "long", "short"]


def test_another_region_is_taken_where_one_has_no_call_left(tmp_path):
    bench = Bench(tmp_path, rows=5)
    _, keys = intended(bench)
    assert len(keys) == 2
    assert {attempt.region for attempt in bench.store.open_attempts()} == {"us-east-1", "eu-west-1"}


def test_it_says_when_the_next_may_find_a_place(tmp_path):
    bench = Bench(tmp_path, rows=5)
    placing, _ = intended(bench)
    assert bench.clock.now < placing.again_s <= bench.clock.now + 1


def test_only_the_first_few_are_sent_before_one_has_run(tmp_path):
    bench = warm(Bench(tmp_path, rows=50, rules=Rules(brake=3)))
    assert len(intended(bench)[1]) == 3
    assert probing(bench.store, bench.store.grid(), bench.clock.now)


def test_a_price_and_the_rows_own_limits_are_kept_with_the_intent(tmp_path):
    offer = Offer(place=Place(region="r", instance_type=TYPE, spot=True), count=4, usd_per_hour=2.5, price_version="v1")
    tasks = [Task(key="a", max_runtime_s=60), Task(key="b", position=1, count=7)]
    bench = Bench(tmp_path, tasks=tasks, placement=FirstAdmitted([offer]), regions={"r": Behaviour()})
    intended(warm(bench))
    first, second = sorted(bench.store.open_attempts(), key=lambda attempt: attempt.task)
    assert (first.count, first.usd_per_hour, first.price_version, first.spot) == (4, 2.5, "v1", True)
    assert (first.max_runtime_s, second.max_runtime_s, second.count) == (60, 86_400, 7)


def test_a_number_whose_name_is_taken_is_passed_over(tmp_path):
    bench = warm(Bench(tmp_path, rows=1))
    _, _ = intended(bench)
    (first,) = bench.store.open_attempts()
    bench.store.database.connection.execute("UPDATE attempt SET state = 'ended', task = 'of-the-same-hash'")
    bench.store.database.connection.execute("UPDATE task SET state = 'waiting', attempts = 0")
    _, _ = intended(bench)
    (second,) = bench.store.open_attempts()
    assert second.name == first.name.removesuffix("a1") + "a2"
