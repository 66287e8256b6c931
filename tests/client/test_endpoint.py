"""Finding and starting a server, with stand-ins for it: tests/local has the real one."""

import concurrent.futures
import dataclasses
import fcntl
import sys
import textwrap
import time

import pytest

from raysm import __version__
from raysm.client.service import Service
from raysm.client.targets import endpoint
from raysm.contract.home import ServerRecord, lock_file, log_file
from raysm.errors import ServiceError
from raysm.request import Local

STAND_IN = """
    import fcntl, http.server, json, os, sys, time
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
            self.wfile.write(json.dumps({"pid": os.getpid(), "started_s": started_s}).encode())

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    with (home / "starts").open("a") as file:
        file.write("x")
    version, started_s = sys.argv[1], time.time()
    record = ServerRecord(pid=os.getpid(), port=server.server_port, started_s=started_s, version=version)
    record.write(home)
    server.serve_forever()
"""


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "home"
    # Not who the record names: a test writes numbers of processes into it that are anybody's.
    for process in endpoint._started:
        process.kill()
        process.wait(60)


def stand_in(version=__version__):
    return (sys.executable, "-c", textwrap.dedent(STAND_IN), version)


def test_all_that_start_a_server_find_the_same_and_its_record_alone_is_not_believed(home, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    assert endpoint.answering(home) is None
    with concurrent.futures.ThreadPoolExecutor() as pool:
        (url,) = {item.result() for item in [pool.submit(endpoint.ensure, home, command=stand_in()) for _ in range(3)]}
    assert (home / "starts").read_text() == "x"
    assert endpoint.ensure(home, command=("/nonsense",)) == url
    record = ServerRecord.read(home)
    assert url == f"http://127.0.0.1:{record.port}"
    # Neither credentials nor a proxy are needed.
    service = Service(Local(home=str(home)))
    assert (service.client("s3").meta.endpoint_url, service.region) == (url, "us-east-1")
    dataclasses.replace(record, pid=record.pid + 1).write(home)
    assert endpoint.answering(home) is None  # another process answers there
    record.write(home)
    assert endpoint.answering(home) == record
    lock_file(home).unlink()
    lock_file(home).touch()
    assert endpoint.answering(home) is None  # no process holds the lock


def test_a_server_does_not_import_from_the_folder_of_its_caller(home, tmp_path, monkeypatch):
    (tmp_path / "standin.py").write_text("raise SystemExit('imported from the caller')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ServiceError, match="No module named standin"):
        endpoint.ensure(home, command=(sys.executable, "-m", "standin"))


def test_a_server_is_started_again_where_the_old_one_was_just_ending(home):
    home.mkdir()
    with lock_file(home).open("wb") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = pool.submit(endpoint.ensure, home, command=stand_in())
            deadline_s = time.monotonic() + 90
            while "another one" not in (log_file(home).read_text() if log_file(home).exists() else ""):
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
            old.close()
            assert found.result(90) == ServerRecord.read(home).url


def test_a_server_that_ends_at_its_start_says_why(home):
    command = (sys.executable, "-c", "import sys; sys.exit('no disk')")
    with pytest.raises(ServiceError, match=r"(?s)ended with 1.*server\.log says:\nno disk"):
        endpoint.ensure(home, command=command)


def test_a_server_of_another_version_is_not_used(home):
    with pytest.raises(ServiceError, match=r"is raysm 0\.0\.1, and this is .*raysm local down"):
        endpoint.ensure(home, command=stand_in("0.0.1"))
