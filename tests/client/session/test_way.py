"""The way to a session's server."""

import http.server
import threading

import pytest

from raysm.client.session.way import way_to_server
from raysm.contract.session import proof
from tests.support.sessions import TOKEN, StubJob, served


class Listens(http.server.BaseHTTPRequestHandler):
    """Answers as ``server.answer`` says, and remembers what it was told."""

    def do_GET(self):
        self.server.heard.append((self.path, dict(self.headers)))
        status, content = self.server.answer(self.path.rpartition("=")[2])
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def stranger():
    """Another program of this machine, at a port."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Listens)
    server.heard = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


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
    "answer",
    [
        lambda challenge: (404, b""),
        lambda challenge: (200, b""),
        lambda challenge: (200, challenge.encode()),
        lambda challenge: (200, b"x" * 10_000),
        lambda challenge: (200, "ü".encode("latin-1")),
    ],
    ids=["knows nothing", "empty", "echo", "long", "no text"],
)
def test_a_stranger_at_that_port_is_left_alone_and_hears_no_token(tmp_path, stranger, answer):
    stranger.answer, port = answer, stranger.server_address[1]
    job = StubJob(tmp_path, 1)
    job.leads_to = 4321
    assert ways(job, port) == ("127.0.0.1:4321", [(port, "algo-1")])
    ((path, headers),) = stranger.heard
    assert TOKEN not in path + str(headers)
    assert "Authorization" not in headers


def test_a_proof_that_a_stranger_had_from_the_servers_own_port_is_none_at_his(tmp_path, stranger):
    port = stranger.server_address[1]
    stranger.answer = lambda challenge: (200, proof(TOKEN, challenge, port + 1).encode())
    job = StubJob(tmp_path, 1)
    assert ways(job, port)[1] == [(port, "algo-1")]


def test_a_proof_of_yesterday_is_none_today(tmp_path, stranger):
    port, answers = stranger.server_address[1], []

    def answer(challenge):
        answers.append(proof(TOKEN, challenge, port).encode())
        return 200, answers[0]

    stranger.answer = answer
    job = StubJob(tmp_path, 1)
    assert ways(job, port)[1] == []
    assert ways(job, port)[1] == [(port, "algo-1")]


def test_the_server_of_another_job_is_not_taken_for_this_ones(tmp_path):
    with served(tmp_path / "served") as server:
        job = StubJob(tmp_path, server.port)
        with way_to_server(job, "u" * 64, ("algo-1", server.port)):
            assert job.tunnels == [(server.port, "algo-1")]
