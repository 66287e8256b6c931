"""Another user of the machine takes every port of a job that becomes free, and keeps what it is sent there."""

import contextlib
import http.client
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import raysm
from raysm.core.client.job.handle import attach, token_of
from raysm.core.client.service import Service
from raysm.core.protocol.home import ServerRecord
from raysm.errors import RaysmError, SessionEnded
from raysm.features.dashboard.address import await_address
from raysm.features.session.client.start import await_server
from tests.support.another_user import needs_two_users, thief
from tests.support.bootstraps import Cluster, request
from tests.support.dashboards import await_dashboard
from tests.support.homes import end, serving

pytestmark = [needs_two_users, pytest.mark.long, pytest.mark.timeout(600)]

WAITS = """
import pathlib, time
print("user code runs", flush=True)
while not pathlib.Path("go").exists(): time.sleep(.05)
"""
HTTP2_SETTINGS = "\0\0\0\4\0\0\0\0\0"
"""An empty SETTINGS frame: after it a gRPC client sends its calls, with the token."""
SESSION_GREETING = "raysm 1\n" + "n" * 32


def status_of(url, path="", timeout_s=60):
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=timeout_s)
    try:
        connection.request("GET", f"{place.path}{path}")
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_dashboards_port_is_never_free(tmp_path):
    with Cluster(tmp_path, request(1), driver=WAITS, fake=False) as cluster:
        port = cluster.ports["dashboard"]
        cluster.start().wait_for("user code runs", 180)
        with thief(port) as other:
            # Any caller starts the dashboard; the head's own reader of it, which has the token,
            # comes later.
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
            assert await_dashboard(port)
            assert status_of(f"http://127.0.0.1:{port}/api/version") == 401
            (cluster.base("algo-1") / "input/data/raysm/source/go").touch()
            # Before the job ends, with which the port is free.
            heard = other.end()
            assert other.events == [["ready"]]
            assert heard == ""
        assert cluster.wait() == {"algo-1": 0}, cluster.log("algo-1")


def test_lines_of_a_job_come_from_no_folder_that_another_user_can_make(tmp_path):
    driver = f"import os\nprint('FOLDER', os.environ['TPU_LOG_DIR'])\n{WAITS}"
    with Cluster(tmp_path, request(1), driver=driver, fake=False) as cluster:
        cluster.start().wait_for("user code runs", 180)
        temp = Path(cluster.ray_temp(0)).resolve()
        # Ray's log monitor reads what this link leads to: by default, /tmp/tpu_logs.
        folder = (temp / "session_latest" / "logs" / "tpu_logs").resolve(strict=True)
        assert folder.is_relative_to(temp)
        assert not list(folder.iterdir())
        # Each driver makes the link again, to the folder of its own variable.
        assert f"FOLDER {folder}" in cluster.log("algo-1")
        (cluster.base("algo-1") / "input/data/raysm/source/go").touch()
        assert cluster.wait() == {"algo-1": 0}, cluster.log("algo-1")


def test_a_head_whose_gcs_port_is_taken_says_by_whom_and_sends_nothing_there(tmp_path):
    with Cluster(tmp_path, request(1), driver=WAITS, fake=False) as cluster:
        port = cluster.ports["gcs"]
        with thief(port, greeting=HTTP2_SETTINGS) as other:
            other.await_port(port)
            assert cluster.start().wait()["algo-1"] != 0
            assert other.end() == ""
        assert f"uid 65534) listens at 127.0.0.1, port {port}" in cluster.log("algo-1")


@pytest.mark.usefixtures("by_value")
@pytest.mark.parametrize(
    "kind", ["process", pytest.param("namespace", marks=pytest.mark.namespace)]
)
def test_a_session_and_its_dashboard_send_no_token_to_who_has_their_ports_later(kind, tmp_path):
    with serving(tmp_path / "home") as home:
        home.mkdir(exist_ok=True)
        session = raysm.Session(
            cluster=raysm.Cluster(count=1),
            on=raysm.Local(home=str(home), instance_kind=kind),
            name="doomed",
        ).start()
        token = token_of(session.job).strip()
        assert session.run(abs, -3) == 3
        ports = await_server(session.job)[1], await_address(session.job).port
        with session.dashboard() as page, thief(*ports, greeting=SESSION_GREETING) as other:
            assert status_of(page.url) == 200
            # Where the instances have a loopback of their own, the other user has the ports of this
            # one meanwhile.
            if kind == "namespace":
                other.await_port(ports[0])
            with raysm.Session.attach(
                "doomed", on=raysm.Local(home=str(home), instance_kind=kind)
            ) as attached:
                assert attached.run(abs, -4) == 4
            with pytest.raises(RaysmError):
                session.exec("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
            if kind == "process":
                other.await_port(ports[0])
            with pytest.raises(SessionEnded):
                session.run(abs, -5)
            # The page asks on while the job has ended; how long it waits for the head is not of
            # interest here.
            with contextlib.suppress(OSError):
                status_of(page.url, "api/version", timeout_s=5)
            heard = other.end()
        session.detach()
    assert token not in heard
    assert "Bearer" not in heard


@pytest.mark.usefixtures("by_value")
def test_a_service_that_is_kept_takes_a_result_from_no_one_who_has_the_servers_port_later(tmp_path):
    with serving(tmp_path / "home") as home:
        service = Service(raysm.Local(home=str(home)))
        job = raysm.submit(raysm.Function(abs, -3), on=service)
        job.wait()
        port = ServerRecord.read(home).port
        end(home)
        with thief(port, greeting="HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as other:
            other.await_port(port)
            # The service still has the address of the server that has ended.
            assert attach(job.name, service).result() == 3
            assert other.end() == ""
