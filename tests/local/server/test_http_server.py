"""Connections of other users of this machine cost the server nothing, and slow clients do not stay for ever."""

import contextlib
import http.client
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from raysm.core.client.targets.local import ensure_server
from raysm.core.protocol.callers import user_of
from raysm.local.server.serving import HttpServer, UnixHttpServer, _Handler, unix_listener
from tests.support.homes import end, serving
from tests.support.strangers import needs_two_users, run_by_another_user, running_as_another_user

SILENT = """
port, count = values
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
print("connected", flush=True)
sys.stdin.read()
"""

ASK = """
port, requests = values
answers = []
for request in requests:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request.encode())
        answers.append(connection.makefile().readline().split()[1])
print(json.dumps(answers), flush=True)
"""


@needs_two_users
def test_more_silent_connections_of_another_user_than_open_files_do_not_keep_the_owner_out(server):
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert before[0] == before[1], "the server raises its limit"
    # A low limit instead of the common 1,024, so that a few connections reach it.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, before[1]))
    server.train("unharmed", "exit 0")
    with running_as_another_user(SILENT, server.record.port, 400) as said:
        assert said == "connected"
        assert server.ended("unharmed")["TrainingJobStatus"] == "Completed"
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) < 100
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 200
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@needs_two_users
def test_every_request_of_another_user_is_refused_whatever_it_is_signed_with(server):
    server.put("secret", b"weights")
    signature = "Authorization: AWS4-HMAC-SHA256 Credential=test/20261125/us-east-1/sagemaker/aws4_request, Signature=0"
    requests = [
        f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{server.record.port}\r\n{signature}\r\n{more}Content-Length: 2\r\n\r\n{{}}"
        for line, more in [
            ("GET /raysm/status", ""),
            ("POST /raysm/shutdown", ""),
            ("GET /test-bucket/secret", ""),
            ("PUT /test-bucket/secret", ""),
            ("POST /", "X-Amz-Target: SageMaker.CreateTrainingJob\r\n"),
            ("POST /", "X-Amz-Target: SageMaker.ListTrainingJobs\r\n"),
            ("POST /", "X-Amz-Target: Logs_20140328.FilterLogEvents\r\n"),
            ("POST /raysm/jobs/us-east-1/unharmed/instances/algo-1/ports/22", ""),
            ("POST /v1/submitjob", ""),
        ]
    ]
    assert run_by_another_user(ASK, server.record.port, requests) == str(
        ["403"] * len(requests)
    ).replace("'", '"')
    assert server.get("secret") == b"weights"


ASK_BY_SOCKET = """
(path,) = values
os.chdir(os.path.dirname(path))
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.path.basename(path))
    print(connection.makefile().readline().split()[1], flush=True)
"""


@needs_two_users
def test_another_user_is_refused_on_the_socket_too_whatever_its_modes():
    with (
        tempfile.TemporaryDirectory() as folder,
        unix_listener(Path(folder), "s") as (listener, path),
    ):
        assert path.stat().st_mode & 0o777 == 0o600
        Path(folder).chmod(0o777)
        path.chmod(0o666)
        with serving_thread(UnixHttpServer(listener, answer)):
            assert run_by_another_user(ASK_BY_SOCKET, path) == "403"


def test_a_home_with_a_path_too_long_for_a_socket_is_served_by_a_socket_elsewhere(tmp_path):
    home = tmp_path / ("h" * 100)
    with serving(home):
        record = ensure_server(home)
        path = Path(record.socket)
        assert not path.is_relative_to(home)
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.parent.exists()


def test_a_server_leaves_no_socket_and_removes_that_of_a_killed_one(tmp_path):
    with serving(tmp_path) as home:
        killed = ensure_server(home)
        end(home, signal.SIGKILL)
        assert Path(killed.socket).exists()
        new = ensure_server(home)
        assert [str(path) for path in home.glob("*.sock")] == [new.socket]
    assert list(home.glob("*.sock")) == []


def answer(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]


class Impatient(_Handler):
    timeout = 0.2


class LessImpatient(_Handler):
    timeout = 2.0
    """A client of this process sends the head of its request well within it."""


@contextlib.contextmanager
def serving_thread(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()


def test_a_client_that_does_not_send_the_head_of_its_request_is_disconnected():
    with serving_thread(HttpServer(0, answer, Impatient)) as server:
        for begun in (b"", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
            with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as silent:
                silent.sendall(begun)
                assert silent.recv(1) == b""


def test_a_client_may_take_its_time_with_the_body_of_its_request():
    with serving_thread(HttpServer(0, answer, LessImpatient)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", "2")
        connection.endheaders()
        time.sleep(1.5 * LessImpatient.timeout)
        connection.send(b"ok")
        assert connection.getresponse().read() == b"ok"
        connection.close()


WAYS = {
    "plainly": ("AF_INET", "127.0.0.1", "127.0.0.1"),
    "from another address of loopback": ("AF_INET", "127.0.0.2", "127.0.0.1"),
    "by way of IPv6": ("AF_INET6", "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
}


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.getuid() != 0,
    reason="needs Linux, and root to be two",
)
@pytest.mark.parametrize("way", WAYS)
def test_it_answers_no_other_user_of_this_machine(server, way):
    # Whatever is imported late must be so before: the other user may not be able to read this
    # Python.
    code = (
        "import os, socket, sys; ''.encode('idna'); os.setgid(65534); os.setuid(65534)\n"
        "with socket.socket(getattr(socket, sys.argv[2])) as connection:\n"
        "    connection.bind((sys.argv[3], 0)); connection.connect((sys.argv[4], int(sys.argv[1])))\n"
        "    connection.sendall(b'GET /raysm/status HTTP/1.0\\r\\nHost: 127.0.0.1\\r\\n\\r\\n')\n"
        "    with connection.makefile() as answer: print(answer.read())"
    )
    asked = [sys.executable, "-c", code, str(server.record.port), *WAYS[way]]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=180)
    assert " 403 " in done.stdout, done
    assert "answers only its own user" in done.stdout


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads Linux's table of connections"
)
def test_the_user_of_a_connection_that_is_being_closed_is_unknown(server):
    with socket.create_connection(("127.0.0.1", server.record.port)) as connection:
        port = connection.getsockname()[1]
        assert user_of(port, server.record.port) == os.getuid()
        connection.shutdown(socket.SHUT_WR)
        assert user_of(port, server.record.port) is None
