"""What stands in for an agent of Ray's until somebody wants it."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from raysm.bootstrap import stand_in
from raysm.bootstrap.stand_in import UNTIL_CALLED, UNTIL_RUNG

NODE = "cd" * 28
AGENT = """
import os, socket, sys
CALLED, SHOWN = "--runtime-env-agent-port=", "--listen-port="
print("agent", os.getpid(), *sys.argv[1:], flush=True)
ports = [word.partition("=")[2] for word in sys.argv if word.startswith((CALLED, SHOWN))]
port = int(ports[-1])
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", port))
server.listen(3)
print("at", server.getsockname()[1], flush=True)
for _ in range(2):
    caller, _ = server.accept()
    caller.sendall(caller.recv(100).upper())
    caller.close()
"""


@pytest.fixture
def stand(tmp_path):
    """Start a stand-in; return its process. It is gone afterwards."""
    (tmp_path / "agent.py").write_text(AGENT)
    begun = []

    def start(*way, port=0):
        own = [f"--session-dir={tmp_path}", f"--node-id={NODE}", "--node-ip-address=127.0.0.1"]
        ports = [f"--runtime-env-agent-port={port}", f"--listen-port={port}"]
        agent = [sys.executable, "-u", str(tmp_path / "agent.py"), *own, *ports]
        command = [sys.executable, "-I", "-S", stand_in.__file__, *way, *agent]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def bell(tmp_path):
    """A bell, and the end at which it is rung."""
    path = tmp_path / "bell"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    yield path, end
    os.close(end)


def said_port(tmp_path, service):
    """Return the port of a service, as soon as it is said."""
    path = tmp_path / f"{service}_{NODE}"
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(path.read_text())


def test_it_says_at_once_that_the_services_are_out_of_use_and_becomes_the_agent_when_it_is_rung(stand, bell, tmp_path):
    process = stand(UNTIL_RUNG, str(bell[0]), "one,two,shown")
    assert [said_port(tmp_path, service) for service in ("one", "two")] == [-1, -1]
    assert process.poll() is None
    os.write(bell[1], b"!")
    assert process.stdout.readline().split()[:3] == ["agent", str(process.pid), f"--session-dir={tmp_path}"]


def test_the_port_that_it_says_of_the_shown_service_is_kept_for_the_agent_that_listens_there(stand, bell, tmp_path):
    stand_in_process = stand(UNTIL_RUNG, str(bell[0]), "one,shown")
    port = said_port(tmp_path, "shown")
    # Not even a program that sets SO_REUSEADDR, which may listen beside a socket that is only bound.
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    os.write(bell[1], b"!")
    assert stand_in_process.stdout.readline().split()[-1] == f"--listen-port={port}"
    assert stand_in_process.stdout.readline() == f"at {port}\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
        caller.sendall(b"log")
        assert caller.recv(100) == b"LOG"


def test_the_first_caller_is_answered_by_the_agent_that_takes_over_and_so_is_the_next(stand, tmp_path):
    process = stand(UNTIL_CALLED, "service")
    port = said_port(tmp_path, "service")
    for words in (b"hello", b"again"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
            caller.sendall(words)
            assert caller.recv(100) == words.upper()
    lines = process.stdout.read().splitlines()
    assert lines[0].split()[1] == str(process.pid)
    assert lines[1] == f"at {port}"
    assert process.wait(60) == 0


def test_it_ends_with_the_process_that_started_it(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    agent = [sys.executable, "-u", str(tmp_path / "agent.py"), f"--session-dir={tmp_path}", f"--node-id={NODE}"]
    command = [sys.executable, stand_in.__file__, UNTIL_CALLED, "service", *agent, "--node-ip-address=127.0.0.1"]
    start = f"import subprocess, sys; print(subprocess.Popen({command}).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert int(parent.stdout.readline()) != parent.pid
        said_port(tmp_path, "service")
        parent.send_signal(signal.SIGKILL)
        # Its output is the parent's: the pipe is at its end when both are gone.
        parent.stdout.read()
