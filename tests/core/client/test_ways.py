"""The way to a job's dashboard, and its Ray address."""

import contextlib
import http.client
import time
import types

import click
import pytest
from click.testing import CliRunner

import raysm
from raysm.core.client.submit import submit
from raysm.core.protocol.events import State, line
from raysm.errors import ForeignListener, InvalidRequest, NotDone
from raysm.features.dashboard.address import (
    SOON_S,
    ClientBuilder,
    DashboardAddress,
    await_address,
    get_job_submission_client_cluster_info,
    open_route,
)
from raysm.features.script.request import Script
from tests.support.another_user import needs_two_users, thief
from tests.support.client_jobs import NOW_MS
from tests.support.dashboard_head import Answer, Head, serving_head

PLACE = DashboardAddress(host="algo-1", port=8265, address="127.0.0.1:8265")


def http_status(address):
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_processing_job_of_this_machine_is_reached_where_it_says(local, script):
    job = submit(Script(str(script)), on=local.service, kind="processing")
    with serving_head() as head:
        place = DashboardAddress(host="algo-1", port=head.port, address=head.address)
        with open_route(job, place) as way:
            assert http_status(way.address) == 401


@needs_two_users
def test_what_another_user_has_at_the_dashboards_port_later_hears_nothing(local, script):
    job = submit(Script(str(script)), on=local.service, kind="processing")
    with contextlib.ExitStack() as stack:
        with serving_head() as head:
            place = DashboardAddress(host="algo-1", port=head.port, address=head.address)
            way = stack.enter_context(open_route(job, place))
        other = stack.enter_context(thief(place.port))
        other.await_port(place.port)
        with pytest.raises((http.client.HTTPException, OSError)):
            http_status(way.address)
        with pytest.raises(ForeignListener, match="another user"):
            stack.enter_context(open_route(job, place))
        assert other.end() == ""


class Tunnelled:
    """A job whose tunnels lead to an address of this machine, and are remembered."""

    def __init__(self, job, address, looks=0):
        self.api, self.service, self.name, self.tunnels = job.api, job.service, job.name, []
        self._address, self._looks = address, looks

    def tunnel(self, port, on=None):
        self.tunnels.append((port, on))
        return contextlib.nullcontext(types.SimpleNamespace(address=self._address))

    def done(self):
        """It ends before the last of so many looks."""
        self._looks -= 1
        return self._looks == 0


class StartingHead(Head):
    """A head whose dashboard comes up while its first caller waits."""

    def answer_to(self, asked):
        if len(self.requests) == 1:
            time.sleep(SOON_S + 0.5)
        return Answer(status=401)


def test_a_dashboard_that_is_being_started_is_waited_for_and_that_is_said_once(job):
    said = []
    with contextlib.closing(StartingHead()) as head:
        tunnelled = Tunnelled(job, head.address)
        with open_route(tunnelled, PLACE, say=said.append) as way:
            assert (len(head.requests), way.address) == (2, head.address)
        assert tunnelled.tunnels == [(8265, "algo-1")]
    assert said == [
        f"waiting for the dashboard of {job.name} to answer: it starts at the first request"
    ]


def test_one_that_does_not_come_up_in_time_is_said(job):
    with pytest.raises(NotDone, match=f"dashboard of {job.name}"):
        open_route(Tunnelled(job, "127.0.0.1:9"), PLACE, limit_s=0).__enter__()


def test_the_dashboard_of_a_job_that_ends_meanwhile_is_waited_for_no_longer(job):
    with open_route(Tunnelled(job, "127.0.0.1:9", looks=2), PLACE) as way:
        assert way.address == "127.0.0.1:9"


def test_a_job_that_does_not_run_is_refused_as_the_tunnel_says(job):
    with pytest.raises(InvalidRequest, match="while it is Training"), open_route(job, PLACE):
        pass


def announce(remote, job, port, time_ms=NOW_MS):
    event = State(name="dashboard", host="algo-1", address=f"http://10.0.0.1:{port}")
    remote.write_log(job.name, "algo-1", [(time_ms, line(event))])


def test_the_place_is_the_last_one_that_the_job_has_told(remote, job, capsys):
    announce(remote, job, 8265)
    announce(remote, job, 9265, NOW_MS + 1)
    assert await_address(job) == DashboardAddress(host="algo-1", port=9265, address="10.0.0.1:9265")
    assert capsys.readouterr().err == ""


def test_ray_finds_by_dir_what_it_asks_for():
    assert {"get_job_submission_client_cluster_info", "ClientBuilder"} <= set(dir(raysm))
    assert raysm.get_job_submission_client_cluster_info is get_job_submission_client_cluster_info
    assert raysm.ClientBuilder is ClientBuilder


def test_ray_init_is_refused_with_the_way_out():
    with pytest.raises(InvalidRequest, match=r"--address raysm://digits .*raysm\.Session"):
        ClientBuilder("digits")


def test_what_cannot_be_is_one_line_of_rays_commands_and_raysms_own_error_to_everybody_else(
    tmp_path, monkeypatch
):
    # Refused before any service is asked.
    (tmp_path / "raysm.toml").write_text("nonsense = 1")
    monkeypatch.chdir(tmp_path)

    @click.command()
    def submit():
        get_job_submission_client_cluster_info("digits")

    told = CliRunner().invoke(submit)
    assert (told.exit_code, len(told.output.splitlines())) == (1, 1), told.output
    assert told.output.startswith("Error: ")
    assert "nonsense" in told.output
    with pytest.raises(InvalidRequest) as caught:
        get_job_submission_client_cluster_info("digits")
    assert str(caught.value) == told.output.removeprefix("Error: ").rstrip()
