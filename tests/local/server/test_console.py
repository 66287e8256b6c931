"""The server's own paths."""

import contextlib
import os
import socket
import termios
import threading
import time

import pytest

from raysm.core.client.job.handle import attach
from raysm.core.client.service import Service
from raysm.core.request import Local
from raysm.errors import InvalidRequest
from raysm.features.dashboard.tunnel.access import DirectAccess, run_command
from raysm.features.dashboard.tunnel.terminal import Terminal
from tests.support.echo import ECHO, exchange
from tests.support.sagemaker_server import port_of, until

LET_IN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}


@pytest.fixture(scope="module")
def service(server):
    return Service(Local(home=str(server.home)), clients=server.client)


@pytest.fixture(scope="module")
def echo(server):
    """A job of two instances that listen; the port of each."""
    server.train("echo", ECHO, count=2, **LET_IN)
    yield {host: port_of(server, "echo", host) for host in ("algo-1", "algo-2")}
    server.sm.stop_training_job(TrainingJobName="echo")
    server.ended("echo")


def test_a_job_that_lets_nobody_in_is_opened_first(server, service):
    server.train("shut", ECHO)
    port = port_of(server, "shut")
    with attach("shut", service).tunnel(port) as tunnel:
        assert exchange(("127.0.0.1", tunnel.port), b"abc") == b"abc"
    assert server.describe("shut")["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    server.sm.stop_training_job(TrainingJobName="shut")
    job = server.ended("shut")
    with pytest.raises(InvalidRequest, match=f"shut is {job['SecondaryStatus']}"):
        attach("shut", service).tunnel(port)


def test_when_the_job_ends_its_connections_do(server, service):
    server.train("ending", ECHO, **LET_IN)
    port = port_of(server, "ending")
    with attach("ending", service).tunnel(port) as tunnel:
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=120) as connection:
            connection.sendall(b"abc")
            assert connection.recv(3) == b"abc"
            server.sm.stop_training_job(TrainingJobName="ending")
            assert connection.recv(1) == b""
    server.ended("ending")


@contextlib.contextmanager
def piped():
    """Yield a user without a terminal, and what returns all that was shown."""
    reader, writer = os.pipe()
    stdin = os.open(os.devnull, os.O_RDONLY)
    shown = bytearray()
    thread = threading.Thread(
        target=lambda: [shown.extend(part) for part in iter(lambda: os.read(reader, 65536), b"")]
    )
    thread.start()

    def end():
        os.close(writer)
        thread.join(60)
        return bytes(shown)

    yield Terminal(stdin, writer), end
    os.close(stdin)
    os.close(reader)


@pytest.mark.parametrize("code", [0, 7])
def test_a_command_shows_its_output_and_returns_its_exit_code(service, echo, code):
    with piped() as (terminal, shown):
        command = ["sh", "-c", f"cat; echo out; echo err >&2; exit {code}"]
        assert (
            run_command(attach("echo", service).chain, command, on="algo-2", terminal=terminal)
            == code
        )
        assert shown() == b"out\nerr\n"


def test_a_command_in_a_terminal_has_its_size_and_hears_ctrl_c(service, echo):
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (30, 100))
    screen = bytearray()

    def sit():
        is_told = False
        with contextlib.suppress(OSError):
            while part := os.read(master, 4096):
                screen.extend(part)
                if b"30 100" in screen and not is_told:
                    is_told = True
                    os.write(master, b"\x03")

    user = threading.Thread(target=sit)
    user.start()
    try:
        command = ["sh", "-c", "trap 'exit 5' INT; stty size; while :; do sleep 0.1; done"]
        assert (
            run_command(attach("echo", service).chain, command, terminal=Terminal(slave, slave))
            == 5
        )
    finally:
        os.close(slave)
        user.join(60)
        os.close(master)
    assert b"30 100" in screen


def test_a_command_ends_with_the_connection_of_its_client(server, service, echo, tmp_path):
    beat = tmp_path / "beat"
    access = DirectAccess(service)
    body = {
        "command": ["sh", "-c", f"while :; do echo >> {beat}; sleep 0.05; done"],
        "stdin": os.devnull,
        "stdout": os.devnull,
    }
    connection = access.connect("/raysm/jobs/us-east-1/echo/instances/algo-1/command", body)
    until(beat.exists)
    connection.close()

    def is_still():
        before = beat.stat().st_size
        time.sleep(0.5)
        return beat.stat().st_size == before

    until(is_still)
