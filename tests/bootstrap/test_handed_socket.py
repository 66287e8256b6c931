"""The dashboard's port, which is listened on from the node's start and handed over."""

import contextlib
import socket
import subprocess
import sys

import pytest

from raysm.bootstrap.handed_socket import DashboardPort

PROGRAM = """
import os, socket, sys
assert __name__ == "__main__"
print(os.path.samestat(os.fstat(0), os.stat(os.devnull)), sys.argv[1:], flush=True)
server = socket.socket()
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen(5)
caller, _ = server.accept()
caller.sendall(caller.recv(100).upper())
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def place():
    number = free_port()
    with contextlib.closing(DashboardPort("127.0.0.1", number)) as kept:
        yield number, kept


def test_a_program_takes_it_over_with_the_callers_that_wait_and_it_is_never_free(place, tmp_path):
    number, kept = place
    (tmp_path / "program.py").write_text(PROGRAM)
    command = kept.command([sys.executable, str(tmp_path / "program.py"), str(number)])
    with socket.create_connection(("127.0.0.1", number), timeout=60) as caller:
        caller.sendall(b"first")
        with kept.as_stdin():
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with process:
            assert caller.recv(100) == b"FIRST"
            assert process.stdout.read() == f"True ['{number}']\n"
    assert process.returncode == 0
    # The program has ended, and the port is still kept.
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", number))


def test_rays_own_test_whether_the_port_is_free_passes_and_the_next_one_does_not(place):
    number, kept = place
    kept.pass_test()
    for passes in (True, False):
        with socket.socket() as test, contextlib.nullcontext() if passes else pytest.raises(OSError, match="in use"):
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            test.bind(("127.0.0.1", number))
