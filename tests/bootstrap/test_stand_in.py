"""A stand-in for an agent of Ray, which becomes the agent at the first connection."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from raysm.bootstrap import stand_in

NODE = "cd" * 28
AGENT = """
import os, socket, sys
print("agent", os.getpid(), *sys.argv[1:], flush=True)
port = int([word.partition("=")[2] for word in sys.argv if word.startswith("--listen-port=")][-1])
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", port))
server.listen(3)
print("at", server.getsockname()[1], flush=True)
for _ in range(3):
    caller, _ = server.accept()
    caller.sendall(caller.recv(100).upper())
    caller.close()
"""


@pytest.fixture
def command(tmp_path):
    """The command line of a stand-in for the service ``called``."""
    (tmp_path / "agent.py").write_text(AGENT)
    own = [f"--session-dir={tmp_path}", f"--node-id={NODE}", "--node-ip-address=127.0.0.1", "--listen-port=0"]
    stand = [sys.executable, "-I", "-S", stand_in.__file__, "--listen-port", "one,two,called"]
    return [*stand, sys.executable, "-u", str(tmp_path / "agent.py"), *own]


def announced_port(tmp_path, service):
    path = tmp_path / f"{service}_{NODE}"
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(path.read_text())


def test_it_becomes_the_agent_at_the_first_connection_and_its_port_is_never_free(command, tmp_path):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert [announced_port(tmp_path, service) for service in ("one", "two")] == [-1, -1]
        port = announced_port(tmp_path, "called")
        # Not even a program that sets SO_REUSEADDR, which may listen beside a socket that is only bound.
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
        assert process.poll() is None
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        for words in (b"hello", b"again"):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
                caller.sendall(words)
                assert caller.recv(100) == words.upper()
        started, at = process.stdout.read().splitlines()
    assert started.split()[1:3] == [str(process.pid), f"--session-dir={tmp_path}"]
    assert started.split()[-1] == f"--listen-port={port}"
    assert at == f"at {port}"


def test_it_ends_with_the_process_that_started_it(command, tmp_path):
    start = f"import subprocess, sys; print(subprocess.Popen({command}).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert int(parent.stdout.readline()) != parent.pid
        announced_port(tmp_path, "called")
        parent.send_signal(signal.SIGKILL)
        # Its output is the parent's: the pipe is at its end when both are gone.
        parent.stdout.read()
