"""From a job to its dashboard."""

import threading
import time

import pytest

from raysm.client.storage import Storage
from raysm.client.token import token_of
from raysm.contract.dashboard_record import DASHBOARD_RECORD, DashboardRecord, pack
from raysm.contract.events import Metric, State, line
from raysm.errors import InvalidConfig, InvalidRequest, NotDone
from raysm.views.dashboard.opening import open_dashboard
from tests.support.client_jobs import NOW_MS
from tests.support.dashboard_head import NODES, way_to

RECORD = DashboardRecord(
    time_s=1_700_000_000.0,
    answers={"api/jobs/": [{"job_id": "01"}], "nodes?view=summary": NODES},
    samples=(Metric(name="cpu_percent", host="algo-1", value=50.0, time_s=1_700_000_000.0),),
)


def announce(remote, job, port=8265):
    event = State(name="dashboard", host="algo-1", address=f"http://10.0.0.1:{port}")
    remote.write_log(job.name, "algo-1", [(NOW_MS, line(event))])


def leave(remote, job, content):
    Storage(remote.service).write(f"{job.outputs}/data/{DASHBOARD_RECORD}", content)


def test_a_job_that_runs_shows_its_heads_page(remote, job, head, ask):
    announce(remote, job)
    asked = []

    def tunnel(job, place):
        asked.append((job.name, place.host, place.port))
        return way_to(head)

    # The head of this test knows a token of its own: what counts is that it is asked with the job's.
    with open_dashboard(job, tunnel=tunnel) as dashboard:
        ask(dashboard.port, dashboard.url.partition(str(dashboard.port))[2])
    assert asked[0] == (job.name, "algo-1", 8265)
    assert head.requests[-1].headers["Authorization"] == f"Bearer {token_of(job)}"


def test_a_job_that_has_none_yet_is_waited_for_and_that_is_said(remote, job, head):
    said = []

    def say(text):
        said.append(text)
        announce(remote, job)

    with open_dashboard(job, say=say, tunnel=lambda *_: way_to(head)):
        assert said == [f"{job.name} has no dashboard yet (Starting); waiting for it"]


def test_the_waiting_has_an_end(job):
    with pytest.raises(NotDone, match=r"has no dashboard within 0 s; it goes on"):
        open_dashboard(job, timeout=0, say=lambda text: None)


def test_a_job_that_ends_while_it_is_waited_for_shows_what_it_left(remote, job, ask):
    def say(_):
        leave(remote, job, pack(RECORD))
        remote.sagemaker.end(job.name, "Completed")

    with open_dashboard(job, say=say) as dashboard:
        assert b"has ended (Completed)" in ask(dashboard.port, dashboard.url.partition(str(dashboard.port))[2])[2]


def test_a_page_that_is_open_when_the_job_ends_shows_what_it_left(remote, job, head, ask):
    announce(remote, job)
    with open_dashboard(job, tunnel=lambda *_: way_to(head)) as dashboard:
        path = dashboard.url.partition(str(dashboard.port))[2]
        assert b"has ended" not in ask(dashboard.port, path)[2]
        remote.sagemaker.end(job.name, "Stopped")
        # Later than the status: whoever looks at once finds nothing yet.
        leave(remote, job, pack(RECORD))
        deadline_s = time.monotonic() + 60
        while b"has ended (Stopped)" not in ask(dashboard.port, path)[2]:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


def test_of_a_job_that_has_ended_everything_comes_from_what_it_left(remote, job, ask):
    remote.write_log(job.name, "algo-1", [(NOW_MS, line(Metric(name="loss", value=1.0))), (NOW_MS + 1, "epoch 1")])
    leave(remote, job, pack(RECORD))
    remote.sagemaker.end(job.name, "Completed")
    with open_dashboard(job) as dashboard:
        path = dashboard.url.partition(str(dashboard.port))[2]
        assert ask(dashboard.port, f"{path}api/jobs/01")[2] == b'{"job_id": "01"}'
        charts = ask(dashboard.port, f"{path}raysm/charts/d/rayDefaultDashboard/?from=now-5m")[2].decode()
        log = ask(dashboard.port, f"{path}api/v0/logs/file?node_id=ab12&filename=algo-1.log")[2].decode()
    assert [title in charts for title in ("<figcaption>loss<", "<figcaption>CPU<")] == [True, True]
    assert log.endswith("epoch 1")


def test_a_job_that_left_none_is_refused_with_what_to_do(remote, job):
    remote.sagemaker.end(job.name, "Failed")
    with pytest.raises(InvalidRequest, match=rf"left no dashboard: it ended before .*raysm logs {job.name}"):
        open_dashboard(job)


def test_a_record_that_is_none_is_refused(remote, job):
    leave(remote, job, b"nonsense")
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidConfig, match=r"raysm/dashboard.json.gz is not what raysm left"):
        open_dashboard(job)


def test_a_dashboard_that_is_closed_leaves_no_thread(remote, job, head):
    announce(remote, job)
    with open_dashboard(job, tunnel=lambda *_: way_to(head)):
        assert any(thread.name == "raysm dashboard" for thread in threading.enumerate())
    assert not any(thread.name == "raysm dashboard" for thread in threading.enumerate())


def test_who_says_nothing_is_told_on_stderr(remote, job, capsys):
    with pytest.raises(NotDone):
        open_dashboard(job, timeout=0)
    assert capsys.readouterr().err == f"raysm: {job.name} has no dashboard yet (Starting); waiting for it\n"
