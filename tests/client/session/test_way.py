"""The way to a session's server."""

import contextlib
import socket
import threading

import pytest

from raysm.client.session.way import way_to_server
from raysm.contract.connections import GREETING
from tests.support.sessions import TOKEN, StubJob, served


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
