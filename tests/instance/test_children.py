"""Child processes: statuses, orphans, and nobody left."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raysm.core.protocol import events
from raysm.instance.children import Children, descendants
from raysm.instance.handed_socket import DashboardPort
from raysm.instance.supervisor import supervise
from tests.support.bootstraps import Cluster, request
from tests.support.own_process import run_apart
from tests.support.processes import is_running
from tests.support.waiting import until

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prctl")


def python(code):
    return [sys.executable, "-S", "-c", code]


def with_children(scenario):
    async def main():
        children = Children()
        try:
            return await scenario(children)
        finally:
            await children.end_all(0)
            children.close()

    return run_apart(main)


def test_a_hundred_children_that_end_at_once_lose_no_status():
    async def scenario(children):
        started = [children.start(["/bin/sh", "-c", f"exit {i}"], os.environ) for i in range(100)]
        return [await child.wait(90) for child in started]

    assert with_children(scenario) == list(range(100))


@linux_only
def test_every_descendant_is_ended_even_one_that_ignores_sigterm_in_a_session_of_its_own():
    code = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "60"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""

    async def scenario(children):
        child = children.start(python(code), os.environ, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        child.stdout.close()
        below = descendants(os.getpid())
        begun = time.monotonic()
        await children.end_all(0.3)
        return child.status, len(below), descendants(os.getpid()), time.monotonic() - begun

    status, below, left, took_s = with_children(scenario)
    assert (status, left) == (-9, [])
    assert below >= 2
    assert took_s >= 0.3


@linux_only
def test_a_child_dies_with_its_parent_even_if_that_is_killed(tmp_path):
    code = """
import asyncio, os
from raysm.instance.children import Children
async def main():
    print(Children().start(["/bin/sleep", "60"], os.environ).pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.send_signal(signal.SIGKILL)
    until(lambda: not is_running(pid), 60)


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (3, "failed")])
def test_the_end_of_the_driver_is_the_exit_code_the_reason_and_the_last_event(
    tmp_path, capfd, code, state
):
    cluster = Cluster(tmp_path, request(1), driver=f"raise SystemExit({code})")
    status = run_apart(lambda: supervise(cluster.prepare("algo-1")))
    assert status.exit_code == code
    assert (cluster.failure("algo-1") is None) == (code == 0)
    out, err = capfd.readouterr()
    heard = [event for event in map(events.parse, out.splitlines()) if event]
    assert heard[-1].name == state
    assert any(getattr(event, "name", "") == "peak_memory_bytes" for event in heard)
    assert ("algo-1 failed: the workload exited with code 3" in err) == (code == 3)


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
        with (
            socket.socket() as test,
            contextlib.nullcontext() if passes else pytest.raises(OSError, match="in use"),
        ):
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            test.bind(("127.0.0.1", number))
