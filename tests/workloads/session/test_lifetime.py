"""When a session ends, and what keeps it busy."""

import asyncio

import pytest
from aiohttp import web

from raysm.workloads.session.lifetime import ATTACHED_S, Lifetime, Rules, Seen, look_at_ray_jobs, seen_in

RULES = Rules(idle_s=1800, idle_detached_s=300)
ATTACHED, DETACHED = "idle for 30 min with a client attached", "idle for 5 min with no client attached"


@pytest.mark.parametrize(
    ("steps", "now_s", "at_s", "why"),
    [
        ([], 0, 300, DETACHED),
        # With a client the longer time counts, from the last activity; heartbeats are none.
        ([("heard", "a", 50), ("active", 60), ("heard", "a", 65)], 70, 1860, ATTACHED),
        # A silent client is gone after 30 s, since its last word.
        ([("heard", "a", 1000)], 1001 + ATTACHED_S, 1300, DETACHED),
        ([("heard", "a", 1000), ("left", "a", 1010)], 1010, 1310, DETACHED),
        ([("heard", "a", 1000), ("heard", "b", 1000), ("left", "a", 1001)], 1001, 2801, ATTACHED),
        # A client that attaches after a silence finds all of the time.
        ([("heard", "a", 290)], 290, 290 + 1800, ATTACHED),
        # keep() never brings the end nearer.
        ([("keep", 5000), ("keep", 200)], 0, 5000, "idle for 83 min with no client attached"),
    ],
    ids=["nobody", "attached", "silent", "left", "one of two", "late", "kept"],
)
def test_the_end_of_an_idle_session(steps, now_s, at_s, why):
    lifetime = Lifetime(RULES, 0.0)
    for name, *arguments in steps:
        getattr(lifetime, name)(*(float(each) if isinstance(each, int) else each for each in arguments))
    end = lifetime.end(float(now_s), is_busy=False)
    assert (end.at_s, end.why) == (at_s, why)
    assert lifetime.end(1e6, is_busy=True) is None


def test_the_budget_counts_from_the_start_of_the_head_and_ends_busy_sessions_too():
    lifetime = Lifetime(Rules(idle_s=1e6, idle_detached_s=1e6, usd_per_hour=3600.0, budget_usd=100.0), 1000.0, 30.0)
    assert lifetime.usd(1000.0) == pytest.approx(30.0)
    end = lifetime.end(1000.0, is_busy=True)
    assert (end.at_s, end.why) == (1070.0, "its budget of 100 USD is spent")
    assert lifetime.uptime_s(1070.0) == 100.0
    # The end that comes first counts.
    lifetime = Lifetime(Rules(idle_s=60, idle_detached_s=60, usd_per_hour=1.0, budget_usd=100.0), 0.0)
    assert lifetime.end(0.0, is_busy=False).why.startswith("idle")
    assert Lifetime(RULES, 0.0).usd(3600.0) is None


def job(status, type="SUBMISSION", end_time=None):
    return {"status": status, "type": type, "end_time": end_time}


@pytest.mark.parametrize(
    ("jobs", "seen"),
    [
        ([job("PENDING"), job("RUNNING"), job("SUCCEEDED", end_time=1000)], Seen(2, 0.0)),
        ([job("FAILED", end_time=4000), job("STOPPED", end_time=7000)], Seen(0, 3.0)),
        # The session's own driver.
        ([job("RUNNING", type="DRIVER")], Seen(0, None)),
    ],
    ids=["running", "ended", "driver"],
)
def test_jobs_submitted_to_ray_are_activity(jobs, seen):
    assert seen_in(jobs, 10.0) == seen


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
        there = await look_at_ray_jobs(port, b"secret\n")
        await runner.cleanup()
        return there, await look_at_ray_jobs(port, b"secret\n")

    assert asyncio.run(script()) == (Seen(1, 0.0), Seen(0, None))
    assert asked == ["Bearer secret"]
