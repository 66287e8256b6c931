"""Attempts that are to end before their time."""

import pytest

from raysm.grid.attempt import AttemptState
from raysm.grid.limiter import Rate
from raysm.grid.stopping import ask_to_stop, wish_all, wish_impatient
from tests.support.grid_world import LOST, Behaviour
from tests.support.grids import Bench


def test_a_wish_is_kept_before_anybody_is_asked(tmp_path):
    bench = Bench(tmp_path, rows=3)
    bench.step()
    wish_all(bench.store, bench.clock.now)
    assert {attempt.wish for attempt in bench.store.open_attempts()} == {"user"}
    assert sum(region.calls["stop"] for region in bench.regions.values()) == 0
    assert bench.states() == {"placed": 2, "stopped": 1}


def test_who_was_asked_is_asked_again_only_after_a_while(tmp_path):
    bench = Bench(tmp_path, rows=1)
    bench.step()
    wish_all(bench.store, bench.clock.now)
    region = bench.regions["us-east-1"]
    for seconds in (0, 5, 119):
        ask_to_stop(bench.store, bench.controller._outside, bench.clock.now + seconds)
    assert region.calls["stop"] == 1


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


def test_a_job_that_runs_is_not_impatiently_stopped(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(run_s=50_000)})
    while bench.clock.now < 1_800_000_000 + 10_000:
        bench.step()
    wish_impatient(bench.store, bench.controller._sweeps.values(), bench.clock.now)
    (attempt,) = bench.store.open_attempts()
    assert (attempt.state, attempt.wish) == (AttemptState.RUNNING, "")


def test_what_no_call_was_left_for_is_asked_as_soon_as_there_is_one(tmp_path):
    rates = {name: Rate(per_s=50, burst=50) for name in ("create", "list", "describe")}
    bench = Bench(tmp_path, rows=4, regions={"r": Behaviour()}, rates=rates | {"stop": Rate(per_s=0.5, burst=1)})
    while len(bench.store.open_attempts()) < 4:
        bench.step()
    wish_all(bench.store, bench.clock.now)
    outside, now = bench.controller._outside, bench.clock.now
    assert ask_to_stop(bench.store, outside, now) == pytest.approx(now + 2)
    for later_s in (2, 4, 6):
        last = ask_to_stop(bench.store, outside, now + later_s)
    assert (last, bench.regions["r"].calls["stop"]) == (None, 4)
