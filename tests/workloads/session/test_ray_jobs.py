"""Jobs that were submitted to the Ray of a session."""

import asyncio

from aiohttp import web

from raysm.workloads.session.ray_jobs import RayJobs, Seen, seen_in


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
