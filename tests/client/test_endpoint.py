"""Finding and starting a server, with stand-ins for it: tests/local has the real one."""

import concurrent.futures
import os
import signal
import sys
import textwrap

import pytest

from raysm import __version__
from raysm.client import endpoint
from raysm.client.service import Service
from raysm.contract.home import ServerRecord
from raysm.errors import ServiceError
from raysm.request import Local

STAND_IN = """
    import fcntl, http.server, os, sys, time
    from pathlib import Path
    from raysm.contract.home import ServerRecord, lock_file

    home = Path(sys.argv[sys.argv.index("--home") + 1])
    lock = lock_file(home).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("another one serves this home")
    time.sleep(0.3)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    with (home / "starts").open("a") as file:
        file.write("x")
    version = sys.argv[1]
    record = ServerRecord(pid=os.getpid(), port=server.server_port, started_s=time.time(), version=version)
    record.write(home)
    server.serve_forever()
"""


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "home"
    record = ServerRecord.read(tmp_path / "home")
    if record is not None:
        os.kill(record.pid, signal.SIGKILL)
    for process in endpoint._started:
        process.wait(10)


def stand_in(version=__version__):
    return (sys.executable, "-c", textwrap.dedent(STAND_IN), version)


def test_a_server_is_started_where_none_answers_and_found_where_one_does(home):
    assert endpoint.answering(home) is None
    url = endpoint.ensure(home, command=stand_in())
    assert endpoint.ensure(home, command=("/nonsense",)) == url
    assert url == f"http://127.0.0.1:{ServerRecord.read(home).port}"


def test_two_that_start_it_at_once_find_the_same(home):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        urls = [item.result() for item in [pool.submit(endpoint.ensure, home, command=stand_in()) for _ in range(3)]]
    assert len(set(urls)) == 1
    assert (home / "starts").read_text() == "x"


def test_the_record_of_a_server_that_was_killed_is_not_believed(home):
    first = endpoint.ensure(home, command=stand_in())
    os.kill(ServerRecord.read(home).pid, signal.SIGKILL)
    for process in endpoint._started:
        process.wait(10)
    assert endpoint.answering(home) is None
    assert endpoint.ensure(home, command=stand_in()).startswith("http://127.0.0.1:")
    assert (home / "starts").read_text() == "xx"
    assert first


def test_a_server_that_ends_at_its_start_says_why(home):
    command = (sys.executable, "-c", "import sys; sys.exit('no disk')")
    with pytest.raises(ServiceError, match=r"(?s)ended at its start with 1.*server\.log says:\nno disk"):
        endpoint.ensure(home, command=command)


def test_a_server_of_another_version_is_not_used(home):
    with pytest.raises(ServiceError, match=r"is raysm 0\.0\.1, and this is .*raysm local down"):
        endpoint.ensure(home, command=stand_in("0.0.1"))


def test_a_client_of_this_machine_needs_no_credentials_and_no_proxy(home, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    url = endpoint.ensure(home, command=stand_in())
    service = Service(Local(home=str(home)))
    assert service.client("s3").meta.endpoint_url == url
    assert service.region == "us-east-1"
