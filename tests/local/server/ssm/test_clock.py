"""The clock of the laptop jumps an hour, there and back, while a tunnel is open and its connections are cut."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from tests.local.server.test_scenarios import playing
from tests.support import shifted_clock
from tests.support.echo import ECHO
from tests.support.sagemaker_server import SOON_S, port_of

TELL = "import time; print(time.time())"


@pytest.fixture
def clock(tmp_path):
    if shifted_clock.why_not() is not None:
        pytest.skip(shifted_clock.why_not())
    return shifted_clock.ShiftedClock(tmp_path)


def test_the_clock_is_shifted(clock):
    def now_s():
        return float(subprocess.check_output([sys.executable, "-c", TELL], env=clock.variables, timeout=SOON_S))

    before_s = now_s()
    clock.jump(3600)
    assert now_s() - before_s >= 3600
    clock.jump(0)
    assert now_s() - before_s < 3600


def echoed(connection, data):
    connection.sendall(data)
    back = b""
    while len(back) < len(data):
        part = connection.recv(1 << 16)
        assert part, f"it ended after {len(back)} bytes"
        back += part
    return back


def test_a_tunnel_goes_on_though_the_clock_jumps_an_hour_there_and_back(tmp_path, clock):
    with playing(tmp_path / "home", "[ssm]\nclose_every_s = 0.3\n") as server:
        server.train("echo", ECHO, RemoteDebugConfig={"EnableRemoteDebug": True})
        command = [sys.executable, "-m", "raysm", "tunnel", "echo", str(port_of(server, "echo")), "--json"]
        variables = {**clock.variables, "RAYSM_HOME": str(server.home)}
        with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as tunnel:
            port = json.loads(tunnel.stdout.readline())["port"]
            with socket.create_connection(("127.0.0.1", port), timeout=SOON_S) as connection:
                for shift in (3600, 0, 3600):
                    data = f"{shift} s ahead".encode() * 10_000
                    assert echoed(connection, data) == data
                    clock.jump(shift)
                    # By a connection through a session that is resumed meanwhile, some requests later.
                    for _ in range(20):
                        assert echoed(connection, data) == data
            tunnel.send_signal(signal.SIGINT)
            tunnel.wait(SOON_S)
        server.sm.stop_training_job(TrainingJobName="echo")
        server.ended("echo")
