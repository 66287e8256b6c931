"""An open session, and the way to its server."""

import contextlib
import io
import socket
import threading
import time
from dataclasses import replace

import cloudpickle
import pytest

from raysm.client.session import opened as module
from raysm.client.session.opened import Opened, as_state, way_to_server
from raysm.contract.connections import GREETING
from raysm.contract.session import CALL, CallRequest, Versions
from raysm.errors import InvalidRequest, SessionEnded
from tests.support.sessions import TOKEN, StubJob, served, until


@pytest.fixture
def server(tmp_path):
    with served(tmp_path) as running:
        yield running


@pytest.fixture
def opened(server, tmp_path):
    here = Opened(StubJob(tmp_path, server.port), "digits", ("algo-1", server.port))
    here.begin()
    yield here
    here.close()


def asked(opened, function, *args):
    request = CallRequest(kind=CALL, name="f", python=Versions.here().pickles)
    return opened.call(request, [cloudpickle.dumps((function, args, {}))])


def test_the_way_is_a_tunnel_to_the_head_and_closed_with_it(server, tmp_path):
    job = StubJob(tmp_path, server.port)
    # At this port of this machine nothing listens.
    here = Opened(job, "digits", ("algo-3", 1))
    assert job.tunnels == [(1, "algo-3")]
    here.close()
    assert job.tunnels == []


def test_a_call_is_executed_and_its_output_comes_to_it(opened):
    call = asked(opened, print, "hello")
    out = io.StringIO()
    call.show(out=out)
    assert (call.result(timeout=60), out.getvalue()) == (None, "hello\n")


def test_a_call_of_which_nobody_holds_the_future_is_still_waited_for(opened):
    ended = []
    asked(opened, time.sleep, 0.2).add_done_callback(ended.append)
    until(lambda: ended)


def test_a_call_is_followed_by_its_id_and_known_ones_are_the_same(opened):
    call = asked(opened, abs, -2)
    assert call.result(timeout=60) == 2
    (status,) = opened.statuses()
    assert opened.follow(status) is call
    del call


def test_another_python_is_refused_with_what_still_works(opened):
    opened.pickles = "2.7"
    with pytest.raises(InvalidRequest, match=r"train cannot travel pickled: this is Python 2\.7.*exec"):
        opened.check_python("train")


def test_another_version_of_a_package_is_a_warning(server, tmp_path, monkeypatch, caplog):
    here = Versions.here()
    monkeypatch.setattr(Versions, "here", lambda: replace(here, ray="2.55.1"))
    opened = Opened(StubJob(tmp_path, server.port), "digits", ("algo-1", server.port))
    monkeypatch.setattr(module, "as_state", lambda row: replace(as_state(row), versions=here))
    opened.begin()
    opened.close()
    assert caplog.messages == [f"the session digits has ray {here.ray}, and here is 2.55.1"]


def test_a_session_that_is_ending_is_not_entered(server, tmp_path):
    server.host.calls.closing = "it was closed"
    here = Opened(StubJob(tmp_path, server.port), "digits", ("algo-1", server.port))
    with pytest.raises(SessionEnded, match="the session digits is closing: it was closed"):
        here.begin()
    here.close()


def test_a_session_that_ends_in_a_call_is_named_with_its_reason(server, opened):
    call = asked(opened, time.sleep, 0.5)
    until(lambda: call.status.state == "running")
    opened.job.reason = "SIGKILL"
    opened.ask("POST", "/close", json={"why": "all done"})
    with pytest.raises(SessionEnded, match=r"the session ended before f did: all done"):
        call.result(timeout=60)


def test_calls_that_are_under_way_are_waited_for_as_long_as_is_wanted(opened):
    call = asked(opened, time.sleep, 0.5)
    opened.await_calls(0.01)
    assert not call.done()
    opened.await_calls(60)
    assert call.done()


@pytest.fixture
def stranger():
    """Another program of this machine at a port: it says ``server.says``, and keeps what it is told."""

    class Stranger:
        def __init__(self):
            self.says, self.heard = b"", b""
            self.server = socket.create_server(("127.0.0.1", 0))
            self.port = self.server.getsockname()[1]
            self.thread = threading.Thread(target=self.serve)
            self.thread.start()

        def serve(self):
            caller, _ = self.server.accept()
            with caller, contextlib.suppress(OSError):
                caller.sendall(self.says)
                caller.settimeout(60)
                while piece := caller.recv(4096):
                    self.heard += piece
                    caller.sendall(b"x" * 32)

    server = Stranger()
    yield server
    server.thread.join()
    server.server.close()


def ways(job, port):
    """Return the address, and the tunnels that were open meanwhile."""
    with way_to_server(job, TOKEN, ("algo-1", port)) as address:
        tunnels = list(job.tunnels)
        return address(), tunnels


def test_a_server_of_this_machine_is_reached_without_a_tunnel(tmp_path):
    with served(tmp_path / "served") as server:
        job = StubJob(tmp_path, server.port)
        assert ways(job, server.port) == (f"127.0.0.1:{server.port}", [])


def test_where_nobody_listens_the_way_is_a_tunnel_to_the_head_which_is_closed_with_it(tmp_path):
    job = StubJob(tmp_path, 1)
    job.leads_to = 4321
    assert ways(job, 1) == ("127.0.0.1:4321", [(1, "algo-1")])
    assert job.tunnels == []


@pytest.mark.parametrize(
    "says", [b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 64, GREETING + b"n" * 32], ids=["HTTP", "as a session"]
)
def test_a_stranger_at_that_port_is_left_alone_and_hears_no_token(tmp_path, stranger, says):
    stranger.says = says
    job = StubJob(tmp_path, 1)
    job.leads_to = 4321
    assert ways(job, stranger.port) == ("127.0.0.1:4321", [(stranger.port, "algo-1")])
    stranger.thread.join()
    assert TOKEN.encode() not in stranger.heard
    assert len(stranger.heard) in (0, 64)


def test_the_server_of_another_job_is_not_taken_for_this_ones(tmp_path):
    with served(tmp_path / "served") as server:
        job = StubJob(tmp_path, server.port)
        with way_to_server(job, "u" * 64, ("algo-1", server.port)):
            assert job.tunnels == [(server.port, "algo-1")]
