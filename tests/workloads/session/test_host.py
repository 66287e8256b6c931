"""A session as a whole: what it tells, and how it ends."""

import asyncio
import json
import time

import pytest

from raysm.contract.session import CLOSING, SERVING, WARNING
from raysm.errors import InvalidRequest
from raysm.workloads.session.blobs import Blobs
from raysm.workloads.session.host import Description, SessionHost
from raysm.workloads.session.lifetime import Lifetime, Rules, Seen
from tests.support.sessions import Jobs, NoCells, ThreadedCalls, executors_of, served, until


def told(server):
    return [(event.name, event.detail) for event in server.events]


def test_it_tells_how_it_is(tmp_path):
    rules = Rules(idle_s=1800, idle_detached_s=300, usd_per_hour=36.0, budget_usd=100.0)
    with served(tmp_path, rules=rules, uptime_s=100.0) as server:
        state = server.host.state()
    assert (state.job, state.hosts, state.cpus, state.busy) == ("digits-1", ("algo-1", "algo-2"), 4.0, 0)
    assert state.usd == pytest.approx(1.0, abs=0.5)
    assert 250 < state.ends_in_s <= 300
    assert "no client attached" in state.ends_why


def test_an_idle_session_warns_ends_and_says_why(tmp_path):
    with served(tmp_path, rules=Rules(idle_s=600, idle_detached_s=0.5)) as server:
        until(server.is_over.is_set)
    assert server.why == "idle for 0 s with no client attached"
    assert told(server)[-1] == (CLOSING, server.why)
    assert told(server)[0][0] in (WARNING, CLOSING)
    assert server.host.notices[-1] == f"the session ends: {server.why}"
    assert SERVING not in dict(told(server))


def test_a_warning_comes_once_for_each_end(tmp_path):
    with served(tmp_path, rules=Rules(idle_s=600, idle_detached_s=4)) as server:
        until(lambda: WARNING in dict(told(server)))
        server.host.keep(3600)
        assert server.host.state().ends_in_s > 3000
    assert [name for name, _ in told(server)] == [WARNING, CLOSING]
    assert "keep(minutes=…) puts that off" in told(server)[0][1]


def test_a_job_of_rays_puts_off_the_end_as_a_call_does(tmp_path):
    with served(tmp_path, rules=Rules(idle_s=600, idle_detached_s=0.5)) as server:
        server.jobs.seen = Seen(1, 0.0)
        until(lambda: server.jobs.looks >= 2)
        assert server.host.state().busy == 1
        assert not server.is_over.is_set()
        server.jobs.seen = Seen(0, 0.0)
        until(lambda: server.host.state().busy == 0)
        server.jobs.seen = Seen(0, 60.0)
        until(server.is_over.is_set)
    assert server.why.startswith("idle")


def test_a_budget_that_is_spent_ends_it(tmp_path):
    rules = Rules(idle_s=600, idle_detached_s=600, usd_per_hour=3600.0, budget_usd=100.0)
    with served(tmp_path, rules=rules, uptime_s=99.5) as server:
        until(server.is_over.is_set)
    assert server.why == "its budget of 100 USD is spent"


def test_the_first_reason_is_the_reason(tmp_path):
    with served(tmp_path) as server:
        # Both in one turn of the loop, which the first one ends.
        both = ("it was closed", "another one")
        server.host.loop.call_soon_threadsafe(lambda: [server.host.close(why) for why in both])
        until(server.is_over.is_set)
    assert server.why == "it was closed"


def test_files_lie_where_calls_run_unless_their_path_is_absolute(tmp_path):
    with served(tmp_path) as server:
        assert server.host.path("a/b.csv") == tmp_path / "work" / "a" / "b.csv"
        assert str(server.host.path("/opt/ml/model/x")) == "/opt/ml/model/x"
        with pytest.raises(InvalidRequest, match="is empty"):
            server.host.path("")


def test_its_state_is_json(tmp_path):
    from raysm.request.codec import to_json

    with served(tmp_path) as server:
        assert json.loads(json.dumps(to_json(server.host.state())))["versions"]["raysm"]


def test_it_lives_without_a_server_and_tells_its_end_once(tmp_path):
    async def live():
        description = Description(job="digits-1", hosts=("algo-1",), folder=tmp_path)
        lifetime = Lifetime(Rules(idle_s=1800, idle_detached_s=300), time.monotonic(), 0.0)
        executors = executors_of(NoCells(), ThreadedCalls())
        host = SessionHost(
            description, NoCells(), executors, ThreadedCalls(), lifetime, Jobs(), events.append, Blobs(tmp_path)
        )
        host.close("it was closed")
        host.close("too late")
        return await host.live(lambda: notices.append(list(host.notices)))

    events, notices = [], []
    assert asyncio.run(live()) == "it was closed"
    assert notices == [["the session ends: it was closed"]]
    assert [(event.name, event.host, event.detail) for event in events] == [(CLOSING, "algo-1", "it was closed")]
