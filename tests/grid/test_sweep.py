"""One look at all jobs: List in pages, and Describe only of what has changed."""

from raysm.grid.attempt import AttemptState
from raysm.grid.limiter import Rate
from raysm.grid.rules import Rules
from raysm.grid.sweep import PATIENCE, PAUSE_S, Sweep
from tests.support.grid_world import Behaviour, changed
from tests.support.grids import Bench

ONE = {"us-east-1": Behaviour(start_s=100, run_s=500)}


def test_a_job_is_described_only_where_its_listed_state_has_changed(tmp_path):
    bench = Bench(tmp_path, rows=10, regions=dict(ONE))
    bench.run()
    # Once as it waits, once as it runs, once as it has ended.
    assert bench.regions["us-east-1"].calls["describe"] == 30


def test_a_job_that_has_ended_is_looked_up_once_however_often_it_is_listed(tmp_path):
    looked_up = []

    def note(statement):
        if "iif(state = 'ended'" in statement:
            looked_up.append(statement)

    bench = Bench(tmp_path, rows=40, regions=dict(ONE), rules=Rules(brake=0, parallel=4))
    bench.store.database.connection.set_trace_callback(note)
    bench.run()
    assert bench.states() == {"done": 40}
    attempts = [attempt.name for attempt in bench.store.attempts()]
    assert bench.regions["us-east-1"].calls["list"] > 3 * len(attempts)
    # When it was new, when it had changed, and once when it was over.
    assert max(sum(name in statement for statement in looked_up) for name in attempts) <= 4


def test_where_nothing_runs_nobody_is_asked(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(), "eu-west-1": Behaviour()})
    bench.run()
    assert bench.regions["eu-west-1"].calls["list"] == 0
    assert bench.controller._sweeps["eu-west-1"].due_s(bench.clock.now) is None


def test_more_jobs_than_a_page_holds_are_all_seen(tmp_path):
    bench = Bench(tmp_path, rows=350, regions=dict(ONE), rules=Rules(brake=0, parallel=350))
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 350}


def test_a_sweep_goes_on_where_its_bucket_was_empty(tmp_path):
    rates = {name: Rate(per_s=50, burst=50) for name in ("create", "describe", "stop")} | {
        "list": Rate(per_s=0.2, burst=1)
    }
    bench = Bench(tmp_path, rows=250, regions=dict(ONE), rates=rates, rules=Rules(brake=0, parallel=250))
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 250}


def test_a_job_that_list_leaves_out_is_asked_for_by_its_name(tmp_path):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    region = bench.regions["us-east-1"]
    region._order.clear()
    bench.run()
    assert bench.states() == {"done": 1}


def test_a_job_that_the_service_knows_no_more_is_taken_for_gone_only_after_a_while(tmp_path):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    region = bench.regions["us-east-1"]
    region.lives.clear()
    region._order.clear()
    sent_s = bench.clock.now
    while bench.store.attempts()[0].state is not AttemptState.ENDED:
        bench.step()
    assert bench.clock.now - sent_s >= 899
    assert "knows the job no more" in bench.store.attempts()[0].reason


def test_a_region_that_is_silent_is_asked_again_after_a_pause(tmp_path):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    sweep = Sweep("us-east-1", bench.store, bench.controller._outside)
    sweep.rest(bench.clock.now)
    assert sweep.due_s(bench.clock.now) == bench.clock.now + 10


def test_list_is_read_no_further_than_to_the_oldest_job_that_is_open(tmp_path):
    bench = Bench(tmp_path, rows=400, regions={"r": Behaviour(start_s=1, run_s=20)}, rules=Rules(brake=0, parallel=100))
    bench.run()
    region = bench.regions["r"]
    # Each of 4 hundreds is over before the next is sent: one page shows all that is open, whatever lies behind it.
    assert region.calls["list"] <= 1.5 * (bench.clock.now - 1_800_000_000) / 10 + 4


def test_the_first_sweep_of_a_process_looks_further_back(tmp_path):
    bench = Bench(tmp_path, rows=210, regions={"r": Behaviour(start_s=1, run_s=60)}, rules=Rules(brake=0, parallel=210))
    while len(bench.store.open_attempts()) < 210:
        bench.step()
    name = bench.store.open_attempts()[0].name
    # An older copy of the store, which does not know the first job any more.
    bench.store.database.connection.execute("DELETE FROM attempt WHERE name = ?", (name,))
    bench.controller._sweeps["r"] = Sweep("r", bench.store, bench.controller._outside)
    bench.step()
    assert [row[0] for row in bench.store.database.connection.execute("SELECT name FROM stray")] == [name]


def test_what_was_answered_before_a_region_fell_silent_is_kept(tmp_path):
    rates = {name: Rate(per_s=50, burst=50) for name in ("create", "list", "describe", "stop")}
    bench = Bench(tmp_path, rows=10, regions=dict(ONE), rates=rates)
    while len(bench.store.open_attempts()) < 10:
        bench.step()
    region = bench.regions["us-east-1"]
    bench.clock.now += 150
    region.behaviour = changed(region.behaviour, rates={"describe": 4.0})
    region._tokens["describe"] = (4.0, bench.clock.now)
    bench.step()
    running = [attempt for attempt in bench.store.open_attempts() if attempt.state is AttemptState.RUNNING]
    assert (len(running), region.throttled) == (4, 1)
    bench.run()
    assert bench.states() == {"done": 10}


def slowly_described(folder):
    """Return twenty jobs that all change, of which one is described every 20 s."""
    rates = {name: Rate(per_s=50, burst=50) for name in ("create", "list", "stop")} | {
        "describe": Rate(per_s=0.05, burst=1)
    }
    return Bench(folder, rows=20, regions=dict(ONE), rates=rates, rules=Rules(brake=0, parallel=20))


def test_while_jobs_wait_to_be_described_others_are_seldom_looked_for(tmp_path):
    bench = slowly_described(tmp_path)
    while not bench.controller._sweeps["us-east-1"].describes:
        bench.step()
    began_s, before = bench.clock.now, bench.regions["us-east-1"].calls["list"]
    while bench.clock.now < began_s + 300:
        bench.step()
    pauses, listed = 300 / PAUSE_S, bench.regions["us-east-1"].calls["list"] - before
    # Not each pause, as what is found could not be described; and not never, as a stray costs until it is found.
    assert pauses / PATIENCE - 1 <= listed <= pauses / PATIENCE + 1


def test_a_job_that_waits_to_be_described_is_looked_up_once(tmp_path):
    bench = slowly_described(tmp_path)
    asked = []
    bench.store.database.connection.set_trace_callback(
        lambda text: asked.append(text) if text.startswith("SELECT * FROM attempt WHERE name") else None
    )
    for _ in range(30):
        bench.step()
    # Each once when it was made and once when it had changed, and the few that were described; not with every sweep.
    assert bench.regions["us-east-1"].calls["list"] >= 5
    assert len(asked) <= 2 * 20 + 2 * bench.regions["us-east-1"].calls["describe"] + 20
