"""Attempts that are to end before their time."""

from raysm.grid.task import AttemptState
from tests.support.grid_world import LOST, Behaviour
from tests.support.grids import Bench

LEFT, KEPT = "us-east-1", "eu-west-1"


def bench_of(folder, left=None, rows=1):
    """Return a grid whose rows go to the region that will be left."""
    return Bench(folder, rows=rows, regions={LEFT: left or Behaviour(), KEPT: Behaviour()})


def test_a_job_in_a_region_that_was_taken_out_is_followed_to_its_end_and_the_grid_closes(tmp_path):
    bench = bench_of(tmp_path)
    bench.step()
    bench.leave(LEFT)
    bench.run(most_s=86_400)
    bench.judge()
    assert bench.states() == {"done": 1}
    assert bench.store.grid().state == "closed"
    assert [attempt.region for attempt in bench.store.attempts()] == [LEFT]


def test_what_was_intended_there_and_never_sent_goes_elsewhere_once_nothing_can_land_any_more(tmp_path):
    bench = bench_of(tmp_path, Behaviour(refusal=LOST))
    bench.step()
    assert bench.store.open_attempts()[0].state is AttemptState.MAYBE
    began_s = bench.clock.now
    bench.leave(LEFT)
    bench.regions[LEFT].behaviour.refusal = None
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 1}
    assert bench.regions[LEFT].lives == {}
    first, second = bench.store.attempts("row-0")
    assert (first.ending, second.region) == ("LEFT", KEPT)
    assert second.intended_s - began_s > 119


def test_a_region_that_was_taken_out_and_does_not_answer_is_named_with_a_remedy(tmp_path):
    bench = bench_of(tmp_path)
    bench.step()
    bench.leave(LEFT)
    until_s = bench.clock.now + 3600
    bench.regions[LEFT].behaviour.silent = ((0, until_s),)
    while bench.clock.now < until_s - 60:
        bench.step()
    (reason,) = bench.store.database.connection.execute("SELECT reason FROM region WHERE name = ?", (LEFT,)).fetchone()
    assert "Could not connect" in reason
    assert "was removed from the grid, which stays open until the region says how 1 job there ended" in reason
    bench.run()
    assert bench.store.grid().state == "closed"


def test_an_attempt_that_was_never_sent_ends_once_nothing_can_land_any_more(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(refusal=LOST)})
    bench.step()
    began_s = bench.clock.now
    bench.store.change_grid("stopping", began_s, fenced=False)
    while bench.store.open_attempts():
        bench.step()
    assert bench.clock.now - began_s > 119
    assert bench.store.attempts()[0].ending == "STOPPED"
    bench.run()
    assert bench.states() == {"stopped": 1}
