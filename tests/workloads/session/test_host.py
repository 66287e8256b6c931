"""A session as a whole: its state, and how it ends."""

import json
import time

import pytest

from raysm.contract.session import CLOSING, WARNING
from raysm.errors import InvalidRequest
from raysm.request.codec import to_json
from raysm.workloads.session import host as module
from raysm.workloads.session.lifetime import Rules, Seen
from tests.support.sessions import served, until


@pytest.fixture(autouse=True)
def checks_often(monkeypatch):
    monkeypatch.setattr(module, "CHECK_S", 0.05)
    monkeypatch.setattr(module, "JOBS_S", 0.1)


def told(server):
    return [(event.name, event.detail) for event in server.events]


def test_its_state_is_json_and_files_lie_where_calls_run(tmp_path):
    rules = Rules(idle_s=1800, idle_detached_s=300, usd_per_hour=36.0, budget_usd=100.0)
    with served(tmp_path, rules=rules, uptime_s=100.0) as server:
        state = server.host.state()
        assert server.host.path("a/b.csv") == tmp_path / "work" / "a" / "b.csv"
        assert str(server.host.path("/opt/ml/model/x")) == "/opt/ml/model/x"
        with pytest.raises(InvalidRequest, match="is empty"):
            server.host.path("")
    assert (state.job, state.hosts, state.cpus, state.busy) == ("digits-1", ("algo-1", "algo-2"), 4.0, 0)
    assert state.usd == pytest.approx(1.0, abs=0.5)
    assert 250 < state.ends_in_s <= 300
    assert "no client attached" in state.ends_why
    assert json.loads(json.dumps(to_json(state)))["versions"]["raysm"]


def test_an_idle_session_warns_once_for_each_end_and_says_why_it_ends(tmp_path):
    with served(tmp_path, rules=Rules(idle_s=600, idle_detached_s=0.4)) as server:
        until(lambda: WARNING in dict(told(server)))
        server.host.loop.call_soon_threadsafe(server.host.lifetime.keep, time.monotonic() + 1.0)
        until(server.is_over.is_set)
    assert server.why == "idle for 1 s with no client attached"
    assert [name for name, _ in told(server)] == [WARNING, WARNING, CLOSING]
    assert "keep(minutes=…) puts that off" in told(server)[0][1]
    assert server.host.notices[-1] == f"the session ends: {server.why}"


def test_a_job_of_rays_puts_off_the_end_as_a_call_does(tmp_path):
    with served(tmp_path, rules=Rules(idle_s=600, idle_detached_s=0.5)) as server:
        server.jobs.seen = Seen(1, 0.0)
        until(lambda: server.jobs.looks >= 2)
        assert server.host.state().busy == 1
        assert not server.is_over.is_set()
        server.jobs.seen = Seen(0, 60.0)
        until(server.is_over.is_set)
    assert server.why.startswith("idle")


def test_a_budget_that_is_spent_ends_it(tmp_path):
    rules = Rules(idle_s=600, idle_detached_s=600, usd_per_hour=3600.0, budget_usd=100.0)
    with served(tmp_path, rules=rules, uptime_s=99.8) as server:
        until(server.is_over.is_set)
    assert server.why == "its budget of 100 USD is spent"
