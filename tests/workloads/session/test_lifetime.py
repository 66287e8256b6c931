"""When a session ends, and what keeps it busy."""

import asyncio

import pytest
from aiohttp import web

from raysm.workloads.session.lifetime import (
    ATTACHED_S,
    WARNING_S,
    Elsewhere,
    Lifetime,
    RayJobs,
    Rules,
    Seen,
    duration,
    seen_in,
)

RULES = Rules(idle_s=1800, idle_detached_s=300)


def end_of(lifetime, now_s, is_busy=False):
    end = lifetime.end(now_s, is_busy=is_busy)
    return None if end is None else (end.at_s, end.why)


def test_who_never_attaches_has_the_detached_time():
    assert end_of(Lifetime(RULES, 100.0), 100.0) == (400.0, "idle for 5 min with no client attached")


def test_with_a_client_attached_the_longer_time_counts_from_the_last_activity():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.heard("a", 50.0)
    lifetime.active(60.0)
    assert end_of(lifetime, 70.0) == (1860.0, "idle for 30 min with a client attached")


def test_a_client_that_falls_silent_is_attached_for_30_s_and_then_was_gone_since_its_last_word():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.heard("a", 1000.0)
    assert lifetime.clients(1000.0 + ATTACHED_S) == 1
    assert end_of(lifetime, 1001.0 + ATTACHED_S) == (1300.0, "idle for 5 min with no client attached")


def test_a_client_that_says_goodbye_is_gone_at_once():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.heard("a", 1000.0)
    lifetime.left("a", 1010.0)
    assert not lifetime.is_attached(1010.0)
    assert end_of(lifetime, 1010.0) == (1310.0, "idle for 5 min with no client attached")


def test_one_of_two_clients_keeps_the_session_attached():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.heard("a", 1000.0)
    lifetime.heard("b", 1000.0)
    lifetime.left("a", 1001.0)
    assert lifetime.clients(1001.0) == 1


def test_who_attaches_after_a_silence_finds_all_of_the_time():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.heard("a", 290.0)
    assert end_of(lifetime, 290.0)[0] == 290.0 + 1800


def test_heartbeats_alone_put_nothing_off():
    lifetime = Lifetime(RULES, 0.0)
    for now_s in range(0, 1800, 5):
        lifetime.heard("a", float(now_s))
    assert end_of(lifetime, 1795.0)[0] == 1800.0


def test_what_works_is_never_idle():
    assert end_of(Lifetime(RULES, 0.0), 1e6, is_busy=True) is None


def test_keep_puts_off_the_end_and_never_brings_it_nearer():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.keep(5000.0)
    lifetime.keep(200.0)
    assert end_of(lifetime, 0.0)[0] == 5000.0


def test_the_end_is_told_five_minutes_before_and_of_short_times_a_quarter():
    lifetime = Lifetime(RULES, 0.0)
    lifetime.heard("a", 0.0)
    assert lifetime.end(0.0, is_busy=False).warn_at_s == 1800.0 - WARNING_S
    assert Lifetime(RULES, 0.0).end(0.0, is_busy=False).warn_at_s == 300.0 - 75.0


def test_the_budget_counts_from_the_begin_of_the_head_and_ends_what_works_too():
    lifetime = Lifetime(Rules(idle_s=1e6, idle_detached_s=1e6, usd_per_hour=3600.0, budget_usd=100.0), 1000.0, 30.0)
    assert lifetime.usd(1000.0) == pytest.approx(30.0)
    assert end_of(lifetime, 1000.0, is_busy=True) == (1070.0, "its budget of 100 USD is spent")
    assert lifetime.uptime_s(1070.0) == 100.0


def test_the_end_that_comes_first_counts():
    lifetime = Lifetime(Rules(idle_s=60, idle_detached_s=60, usd_per_hour=1.0, budget_usd=100.0), 0.0)
    assert end_of(lifetime, 0.0)[1].startswith("idle")


def test_without_a_price_nobody_knows_what_it_has_cost():
    assert Lifetime(RULES, 0.0).usd(3600.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (119, "119 s"), (300, "5 min"), (7199, "120 min"), (9000, "2.5 h")]
)
def test_a_time_is_told_as_people_do(seconds, text):
    assert duration(seconds) == text


def job(status, type="SUBMISSION", end_time=None):
    return {"status": status, "type": type, "end_time": end_time}


def test_a_job_that_waits_or_runs_keeps_the_session_busy():
    assert seen_in([job("PENDING"), job("RUNNING"), job("SUCCEEDED", end_time=1000)], 10.0) == Seen(2, 0.0)


def test_of_jobs_that_have_ended_the_last_one_counts():
    assert seen_in([job("FAILED", end_time=4000), job("STOPPED", end_time=7000)], 10.0) == Seen(0, 3.0)


def test_the_sessions_own_driver_is_no_job():
    assert seen_in([job("RUNNING", type="DRIVER")], 10.0) == Seen(0, None)


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
        jobs = RayJobs(port, b"secret\n")
        there = await jobs.look()
        await runner.cleanup()
        return there, await jobs.look()

    assert asyncio.run(script()) == (Seen(1, 0.0), Seen(0, None))
    assert asked == ["Bearer secret"]


class Looks:
    def __init__(self, seen):
        self.seen = seen

    async def look(self):
        return self.seen


@pytest.mark.parametrize(
    ("each", "together"),
    [
        ((), Seen(0, None)),
        ((Seen(0, None), Seen(0, None)), Seen(0, None)),
        ((Seen(0, 90.0), Seen(0, 30.0)), Seen(0, 30.0)),
        ((Seen(2, 0.0), Seen(1, 0.0)), Seen(3, 0.0)),
        ((Seen(0, 90.0), Seen(1, 0.0)), Seen(1, 0.0)),
    ],
    ids=["nothing", "never", "the latest end", "sum", "one runs"],
)
def test_all_that_runs_counts_and_the_latest_end(each, together):
    assert asyncio.run(Elsewhere(*map(Looks, each)).look()) == together
