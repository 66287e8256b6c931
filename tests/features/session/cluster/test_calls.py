"""The calls of a session, and how long it lives."""

import asyncio
import itertools
import os
import pickle
import time

import pytest
from aiohttp import web

from raysm.core.protocol import names
from raysm.core.protocol.events import Metric, Progress, line, parse
from raysm.core.protocol.parcels import SMALL_BYTES
from raysm.errors import InvalidRequest, SessionEnded
from raysm.features.session.cluster import calls as module
from raysm.features.session.cluster.blobs import Blobs
from raysm.features.session.cluster.calls import CallEnded, Calls
from raysm.features.session.cluster.lifetime import (
    ATTACHED_S,
    Activity,
    Lifetime,
    LifetimeRules,
    fetch_ray_activity,
    summarize_jobs,
)
from raysm.features.session.cluster.outcomes import failed_outcome, interrupted_outcome
from raysm.features.session.protocol import (
    CALL,
    CELL,
    DONE,
    RUNNING,
    SHELL,
    WAITING,
    CallRequest,
    Outcome,
)
from raysm.features.session.request import SessionWorkload
from raysm.features.session.runner import lifetime_of
from raysm.instance.environment import read

WAIT_S = 300.0
told = []
"""The events of the last session."""


class Scripted:
    """Ends calls when it is told to."""

    def __init__(self, size=10, error=None):
        self.begun, self.interrupted, self.go = [], [], asyncio.Event()
        self.outcome, self.error = (b"x" * size, False), error

    async def run(self, call):
        self.begun.append(call.id)
        call.start()
        await self.go.wait()
        if self.error:
            raise self.error
        return self.outcome

    def interrupt(self, call):
        self.interrupted.append(call.id)


def with_calls(folder, script, blobs=None, **how):
    """Run the coroutine function ``script(calls, executor, active)``."""

    async def go():
        executor, active = Scripted(**how), []
        told.clear()
        executors = dict.fromkeys((CALL, CELL, SHELL), executor)
        await script(
            Calls(executors, blobs or Blobs(folder), active.append, told.append), executor, active
        )

    asyncio.run(asyncio.wait_for(go(), WAIT_S))


def ask(calls, id="1", **fields):
    return calls.start_once(
        id,
        CallRequest(kind=fields.pop("kind", CALL), name="f", **fields),
        b"body",
        lambda call: None,
    )


def test_a_large_outcome_for_which_there_is_no_room_is_said_to_who_waits_for_it(tmp_path):
    (tmp_path / "full").touch()
    # No memory, and a file where the folder would have to be, stand for a disk that takes nothing.
    blobs = Blobs(tmp_path / "full", memory_share=0)

    async def script(calls, executor, active):
        executor.go.set()
        call = ask(calls)
        await call.done.wait()
        assert call.status.failed
        assert Outcome.decode(call.outcome).error.type == "FileExistsError"

    with_calls(tmp_path, script, blobs, size=SMALL_BYTES + 1)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "done"),
        (RuntimeError("no room"), "failed"),
        (CallEnded(interrupted_outcome()), "stopped"),
    ],
)
def test_a_call_that_reports_metrics_tells_its_number_its_arguments_and_its_end(
    tmp_path, error, status
):
    async def script(calls, executor, active):
        executor.go.set()
        call = ask(calls, "2", kind=CALL)
        lines = [
            call.output.log_lines(line(Metric(name="loss", value=value)), '{"lr": 0.1}')
            for value in (2.0, 1.0)
        ]
        await call.done.wait()
        begin, *metrics = map(parse, itertools.chain(*lines))
        assert [(each.call, each.value) for each in metrics] == [(1, 2.0), (1, 1.0)]
        assert (begin.number, begin.name, begin.status, begin.params) == (
            1,
            "f",
            "running",
            {"lr": 0.1},
        )
        (end,) = told
        assert (end.number, end.params, end.status) == (1, {"lr": 0.1}, status)
        assert end.reason == ("RuntimeError: no room" if status == "failed" else "")
        await ask(calls, "3").done.wait()
        assert len(told) == 1

    with_calls(tmp_path, script, error=error)


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (SHELL, Metric(name="loss", value=1.0)),
        (CALL, Progress(phase="reading", done=1, total=2)),
    ],
    ids=["a metric of a command", "no metric of a call"],
)
def test_other_events_are_the_jobs_own(tmp_path, kind, event):
    async def script(calls, executor, active):
        executor.go.set()
        call = ask(calls, kind=kind)
        assert call.output.log_lines(line(event), "{}") == [line(event)]
        await call.done.wait()
        assert told == []

    with_calls(tmp_path, script)


def test_a_cell_that_reports_metrics_has_no_arguments(tmp_path):
    async def script(calls, executor, active):
        cell = ask(calls, kind=CELL)
        begin, _ = map(parse, cell.output.log_lines(line(Metric(name="loss", value=1.0)), ""))
        assert (begin.number, begin.params) == (1, {})

    with_calls(tmp_path, script)


def test_a_call_that_reports_metrics_and_fails_with_a_large_exception_is_told_as_failed(tmp_path):
    async def script(calls, executor, active):
        executor.outcome = failed_outcome("ValueError", "x" * SMALL_BYTES).encode(), True
        executor.go.set()
        call = ask(calls)
        call.output.log_lines(line(Metric(name="loss", value=1.0)), "{}")
        await call.done.wait()
        assert [end.status for end in told] == ["failed"]

    with_calls(tmp_path, script)


def test_the_status_of_a_call_says_whether_it_waits_runs_or_has_ended_and_how_long_it_ran(tmp_path):
    async def script(calls, executor, active):
        before_s = time.monotonic()
        call = ask(calls)
        assert (call.status.state, call.status.failed, call.status.took_s) == (WAITING, False, 0.0)
        await asyncio.sleep(0)
        assert (call.status.state, call.status.failed) == (RUNNING, False)
        until_s = time.monotonic() + 0.01
        while time.monotonic() < until_s:
            await asyncio.sleep(0.001)
        assert 0.01 <= call.status.took_s <= time.monotonic() - before_s
        executor.go.set()
        await call.done.wait()
        assert call.status.state == DONE
        # It does not go on after the end.
        took_s = call.status.took_s
        assert 0.01 <= took_s <= time.monotonic() - before_s
        assert call.status.took_s == took_s

    with_calls(tmp_path, script)


def test_the_idle_time_begins_again_when_a_call_arrives_and_when_it_ends(tmp_path):
    async def script(calls, executor, active):
        call = ask(calls)
        assert len(active) == 1
        executor.go.set()
        await call.done.wait()
        assert len(active) == 2
        assert active == sorted(active)
        assert active[-1] <= time.monotonic()
        # A call that has ended keeps no session busy.
        for _ in range(10):
            await asyncio.sleep(0)
        assert calls.busy == 0

    with_calls(tmp_path, script)


@pytest.mark.parametrize(
    ("error", "headline", "kind"),
    [
        (RuntimeError("no room"), "RuntimeError: no room", None),
        # The client raises what raysm refuses as the same error.
        (
            InvalidRequest("no instance 'algo-9'"),
            "InvalidRequest: no instance 'algo-9'",
            InvalidRequest,
        ),
        (CallEnded(failed_outcome("WorkerDied", "it died")), "WorkerDied: it died", None),
    ],
)
def test_an_error_of_the_executor_is_the_outcome(tmp_path, error, headline, kind):
    async def script(calls, executor, active):
        executor.go.set()
        call = ask(calls)
        await call.done.wait()
        assert call.status.failed
        outcome = Outcome.decode(call.outcome)
        assert outcome.error.headline == headline
        assert kind is None or isinstance(pickle.loads(outcome.pickled), kind)

    with_calls(tmp_path, script, error=error)


def test_delivered_outcomes_are_forgotten_the_oldest_first_and_never_executed_again(tmp_path):
    async def script(calls, executor, active):
        running = ask(calls, "running")
        for id in ("running", "unheard"):
            calls.deliver(id)
        executor.go.set()
        await running.done.wait()
        assert not running.is_delivered
        for number in range(module.KEPT_CALLS + 3):
            await ask(calls, str(number)).done.wait()
            if number != 1:
                calls.deliver(str(number))
                calls.deliver(str(number))
        assert calls.get("1") is not None
        assert calls.get(str(module.KEPT_CALLS)) is not None
        with pytest.raises(InvalidRequest, match="not kept"):
            ask(calls, "0")
        assert executor.begun.count("0") == 1
        assert "0" not in {call.id for call in calls.list_all()}

    with_calls(tmp_path, script)


def test_a_call_that_is_interrupted_before_it_begins_does_not_begin(tmp_path):
    async def script(calls, executor, active):
        call = ask(calls)
        calls.interrupt(call)
        await call.done.wait()
        assert executor.begun == []
        assert Outcome.decode(call.outcome).error.cancelled
        calls.interrupt(call)
        assert executor.interrupted == ["1"]

    with_calls(tmp_path, script)


def test_at_the_end_calls_are_interrupted_and_those_that_do_not_end_are_given_up(tmp_path):
    async def script(calls, executor, active):
        call = ask(calls)
        await asyncio.sleep(0)
        await calls.close("it was closed", 0.01)
        assert executor.interrupted == ["1"]
        ended = Outcome.decode(call.outcome)
        assert "it was closed" in ended.error.message
        assert isinstance(pickle.loads(ended.pickled), SessionEnded)
        with pytest.raises(SessionEnded, match="it was closed"):
            ask(calls, "2")
        assert ask(calls) is call

    with_calls(tmp_path, script)


@pytest.mark.parametrize("way", ["outcome", "exception"])
def test_a_call_that_is_interrupted_because_the_session_ends_says_why(tmp_path, way):
    async def script(calls, executor, active):
        executor.outcome = interrupted_outcome("algo-1").encode(), True
        executor.error = CallEnded(interrupted_outcome("algo-1")) if way == "exception" else None
        executor.interrupt = lambda call: executor.go.set()
        call = ask(calls)
        await asyncio.sleep(0)
        await calls.close("its budget of 20 USD is spent", WAIT_S)
        error = pickle.loads(Outcome.decode(call.outcome).pickled)
        assert isinstance(error, SessionEnded)
        assert "its budget of 20 USD is spent" in str(error)

    with_calls(tmp_path, script)


def test_a_call_that_returns_while_the_session_ends_keeps_its_value(tmp_path):
    async def script(calls, executor, active):
        executor.outcome = Outcome(pickled=b"a value").encode(), False
        executor.interrupt = lambda call: executor.go.set()
        call = ask(calls)
        await asyncio.sleep(0)
        await calls.close("it was closed", WAIT_S)
        assert Outcome.decode(call.outcome).pickled == b"a value"

    with_calls(tmp_path, script)


@pytest.mark.parametrize("way", ["small", "large", "process"])
def test_a_call_that_fails_while_the_session_ends_keeps_its_failure(tmp_path, way):
    async def script(calls, executor, active):
        failure = failed_outcome("ValueError", "x" * (SMALL_BYTES if way == "large" else 1))
        executor.outcome = failure.encode(), True
        executor.error = CallEnded(failure) if way == "process" else None
        executor.interrupt = lambda call: executor.go.set()
        call = ask(calls)
        await asyncio.sleep(0)
        await calls.close("it was closed", WAIT_S)
        outcome = call.outcome if isinstance(call.outcome, bytes) else bytes(call.outcome.content())
        assert Outcome.decode(outcome).error.type == "ValueError"

    with_calls(tmp_path, script)


RULES = LifetimeRules(idle_s=1800, idle_detached_s=300)
ATTACHED, DETACHED = (
    "idle for 30 min with a client attached",
    "idle for 5 min with no client attached",
)


@pytest.mark.parametrize(
    ("steps", "now_s", "at_s", "why"),
    [
        ([], 0, 300, DETACHED),
        # With a client the longer time counts, from the last activity; heartbeats are none.
        (
            [("note_heartbeat", "a", 50), ("note_activity", 60), ("note_heartbeat", "a", 65)],
            70,
            1860,
            ATTACHED,
        ),
        # A silent client is gone after 30 s, since its last word.
        ([("note_heartbeat", "a", 1000)], 1001 + ATTACHED_S, 1300, DETACHED),
        ([("note_heartbeat", "a", 1000), ("note_departure", "a", 1010)], 1010, 1310, DETACHED),
        (
            [
                ("note_heartbeat", "a", 1000),
                ("note_heartbeat", "b", 1000),
                ("note_departure", "a", 1001),
            ],
            1001,
            2801,
            ATTACHED,
        ),
        # A client that attaches after a silence finds all of the time.
        ([("note_heartbeat", "a", 290)], 290, 290 + 1800, ATTACHED),
        # Without clients it counts from the last heartbeat of any, or from the end of the last
        # call.
        (
            [
                ("note_heartbeat", "a", 1000),
                ("note_heartbeat", "b", 1010),
                ("note_heartbeat", "a", 1020),
            ],
            1100,
            1320,
            DETACHED,
        ),
        ([("note_heartbeat", "a", 1000), ("note_activity", 1200)], 1200, 1500, DETACHED),
        # keep() never brings the end nearer.
        ([("keep", 5000), ("keep", 200)], 0, 5000, "idle for 83 min with no client attached"),
    ],
    ids=[
        "nobody",
        "attached",
        "silent",
        "left",
        "one of two",
        "late",
        "two silent",
        "working",
        "kept",
    ],
)
def test_the_end_of_an_idle_session(steps, now_s, at_s, why):
    lifetime = Lifetime(RULES, 0.0)
    for name, *arguments in steps:
        getattr(lifetime, name)(
            *(float(each) if isinstance(each, int) else each for each in arguments)
        )
    end = lifetime.find_end(float(now_s), is_busy=False)
    assert (end.at_s, end.why) == (at_s, why)
    assert lifetime.find_end(1e6, is_busy=True) is None


def test_the_budget_counts_from_the_start_of_the_head_and_ends_busy_sessions_too():
    lifetime = Lifetime(
        LifetimeRules(idle_s=1e6, idle_detached_s=1e6, usd_per_hour=3600.0, budget_usd=100.0),
        1000.0,
        970.0,
    )
    assert lifetime.usd(1000.0) == pytest.approx(30.0)
    end = lifetime.find_end(1000.0, is_busy=True)
    assert (end.at_s, end.why) == (1070.0, "its budget of 100 USD is spent")
    assert lifetime.uptime_s(1070.0) == 100.0
    # The end that comes first counts.
    lifetime = Lifetime(
        LifetimeRules(idle_s=60, idle_detached_s=60, usd_per_hour=1.0, budget_usd=100.0), 0.0
    )
    assert lifetime.find_end(0.0, is_busy=False).why.startswith("idle")
    assert Lifetime(RULES, 0.0).usd(3600.0) is None


def test_uptime_of_a_session_does_not_depend_on_the_clock_that_is_set(instance):
    began_s = time.monotonic() - 30
    # As if the clock had been set forward by an hour since the container was made.
    os.utime(instance.resource_config, (time.time() - 3600,) * 2)
    environment = read({names.BASE_DIR: str(instance.base), names.BEGAN: str(began_s)})
    lifetime = lifetime_of(SessionWorkload(usd_per_hour=3600.0), environment)
    assert lifetime.uptime_s(began_s + 40) == pytest.approx(40)
    assert lifetime.usd(began_s + 40) == pytest.approx(40)


@pytest.mark.parametrize(("limit_s", "ends_s"), [(80.0, 40.0), (7080.0, 6960.0), (1e6, 7200.0)])
def test_it_ends_itself_before_the_service_stops_its_job_without_a_reason(limit_s, ends_s):
    rules = LifetimeRules(
        idle_s=1e9, idle_detached_s=1e9, usd_per_hour=1.0, budget_usd=2.0, limit_s=limit_s
    )
    end = Lifetime(rules, 0.0).find_end(0.0, is_busy=True)
    assert (end.at_s, end.why) == (ends_s, "its budget of 2 USD is spent")


@pytest.mark.parametrize(("time_s", "before_s"), [(400, 100), (4000, 300)])
def test_clients_are_warned_five_minutes_before_the_end_but_at_most_a_quarter_of_the_time(
    time_s, before_s
):
    idle = Lifetime(LifetimeRules(idle_s=time_s, idle_detached_s=time_s), 1000.0).find_end(
        1000.0, is_busy=False
    )
    assert (idle.at_s, idle.warn_at_s) == (1000 + time_s, 1000 + time_s - before_s)
    rules = LifetimeRules(
        idle_s=1e6, idle_detached_s=1e6, usd_per_hour=3600.0, budget_usd=float(time_s)
    )
    spent = Lifetime(rules, 1000.0).find_end(1000.0, is_busy=True)
    assert (spent.at_s, spent.warn_at_s) == (1000 + time_s, 1000 + time_s - before_s)


def test_a_session_with_a_price_and_no_budget_ends_when_it_is_idle():
    lifetime = Lifetime(LifetimeRules(idle_s=1800, idle_detached_s=300, usd_per_hour=36.0), 0.0)
    assert lifetime.find_end(0.0, is_busy=False).why == DETACHED
    assert lifetime.find_end(0.0, is_busy=True) is None


def job(status, type="SUBMISSION", end_time=None):
    return {"status": status, "type": type, "end_time": end_time}


@pytest.mark.parametrize(
    ("jobs", "seen"),
    [
        ([job("PENDING"), job("RUNNING"), job("SUCCEEDED", end_time=1000)], Activity(2, 0.0)),
        ([job("FAILED", end_time=4000), job("STOPPED", end_time=7000)], Activity(0, 3.0)),
        # The session's own driver.
        ([job("RUNNING", type="DRIVER")], Activity(0, None)),
    ],
    ids=["running", "ended", "driver"],
)
def test_jobs_submitted_to_ray_are_activity(jobs, seen):
    assert summarize_jobs(jobs, 10.0) == seen


def test_the_dashboard_is_asked_with_the_token_and_may_be_away():
    asked = []

    async def answer(request):
        asked.append(request.headers["Authorization"])
        return web.json_response([job("RUNNING")])

    async def script():
        app = web.Application()
        app.router.add_get("/api/jobs/", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        there = await fetch_ray_activity(port, b"secret\n")
        await runner.cleanup()
        return there, await fetch_ray_activity(port, b"secret\n")

    assert asyncio.run(script()) == (Activity(1, 0.0), Activity(0, None))
    assert asked == ["Bearer secret"]
