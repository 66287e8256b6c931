"""One run of the driver and of its stand-in: why it ended, and what of that becomes the job's."""

import asyncio
import dataclasses
import signal
import socket
import subprocess
import sys

import pytest

from raysm.core.protocol.events import Metric, line
from raysm.core.protocol.result import VALUE
from raysm.core.protocol.store import put
from raysm.features.script.request import PickledFunction
from raysm.features.session.request import SessionWorkload
from raysm.instance import stand_in
from raysm.instance.children import Children
from raysm.instance.driver_process import TAIL_BYTES, DriverRun, measures_only
from tests.support.bootstraps import DEADLINE_S, Cluster, request
from tests.support.own_process import run_apart
from tests.support.waiting import until

RECORD = """
import os, sys
from pathlib import Path
from raysm.core.protocol.result import Failure
failure = Failure(error_type="{error}", message="no such column")
failure.write(Path(os.environ["RAYSM_FAILURE_RECORD"]))
raise SystemExit(1)
"""


def run(cluster, look, address="10.0.0.1:6379", go=None):
    """Return what ``look`` says of a run of the cluster's driver that has ended, and of how it ended."""

    async def scenario():
        children = Children()
        ended = asyncio.get_running_loop().create_future()
        driver = DriverRun(
            cluster.prepare("algo-1"), children, address, ended.set_result, lambda lines: None
        )
        try:
            if go:
                driver.go(go)
            return look(driver, await asyncio.wait_for(ended, DEADLINE_S))
        finally:
            await children.end_all(0)
            driver.close()
            children.close()

    return run_apart(scenario)


def test_a_driver_that_waits_is_told_its_cluster_on_its_stdin(tmp_path):
    code = "import sys; sys.exit(7 if sys.argv[1:] == ['--wait'] and input() == '10.0.0.1:6379' else 1)"
    cluster = Cluster(tmp_path, request(1), driver=code)
    assert run(cluster, lambda driver, end: end.status, address=None, go="10.0.0.1:6379") == 7


def test_the_end_of_a_driver_comes_with_what_it_has_recorded_and_publishes_it(tmp_path):
    cluster = Cluster(tmp_path, request(1), driver=RECORD.format(error="ValueError"))
    end, status = run(cluster, lambda driver, end: (end, driver.exit_status(end)))
    assert end.failure.headline == "ValueError: no such column"
    assert (status.exit_code, status.reason) == (1, "ValueError: no such column")
    assert cluster.recorded() == end.failure


@pytest.mark.parametrize(
    ("error", "own"), [("ValueError", True), ("ray.exceptions.ActorDiedError", False)]
)
def test_a_failure_is_the_driver_s_own_unless_it_blames_the_cluster(tmp_path, error, own):
    cluster = Cluster(tmp_path, request(1), driver=RECORD.format(error=error))
    status = run(cluster, lambda driver, end: driver.own_exit_status())
    assert (status is not None) == own
    assert (cluster.recorded() is not None) == own


@pytest.mark.parametrize("value", [None, b"pickled"])
def test_a_function_whose_process_ends_well_without_a_value_has_failed(tmp_path, value):
    function = PickledFunction(name="main.f", python="3.11")
    cluster = Cluster(tmp_path, dataclasses.replace(request(1), workload=function))

    def look(driver, end):
        if value is not None:
            put(cluster.prepare("algo-1").environment.paths.model / VALUE, value)
        return driver.exit_status(end)

    status = run(cluster, look)
    assert (status.exit_code, bool(status.reason)) == ((1, True) if value is None else (0, False))


@pytest.mark.parametrize("marks", [True, False])
def test_a_session_whose_process_ends_well_before_the_session_has_failed(tmp_path, marks):
    mark = (
        "Path(os.environ['RAYSM_FAILURE_RECORD']).with_name('ended').touch()" if marks else "pass"
    )
    job = dataclasses.replace(request(1), workload=SessionWorkload())
    cluster = Cluster(
        tmp_path, job, driver=f"import os; from pathlib import Path; {mark}; os._exit(0)"
    )
    status = run(cluster, lambda driver, end: driver.exit_status(end))
    assert (status.exit_code, bool(status.reason)) == ((0, False) if marks else (1, True))


def test_stderr_goes_on_to_the_log_and_its_end_is_kept(tmp_path, capfdbinary):
    code = "import sys; sys.stderr.write(1000 * ('x' * 199 + '\\n') + 'the end'); sys.exit(2)"
    cluster = Cluster(tmp_path, request(1), driver=code)
    status, tail = run(cluster, lambda driver, end: (end.status, driver.tail()))
    assert status == 2
    assert len(tail) == TAIL_BYTES
    assert tail.endswith("x\nthe end")
    assert capfdbinary.readouterr().err == 1000 * (b"x" * 199 + b"\n") + b"the end\n"


def test_a_grandchild_that_keeps_stderr_open_delays_nothing_and_a_progress_bar_and_a_print_are_lines(
    tmp_path, capfdbinary
):
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60'])"
    bar = "; sys.stderr.write('\\r10%\\r20%'); print('step'); sys.stderr.write('\\r30%\\n')"
    assert (
        run(Cluster(tmp_path, request(1), driver=code + bar), lambda driver, end: end.status) == 0
    )
    captured = capfdbinary.readouterr()
    assert captured.out == b"step\n"
    assert captured.err == b"10%\n30%\n"


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
    own = [
        f"--session-dir={tmp_path}",
        f"--node-id={NODE}",
        "--node-ip-address=127.0.0.1",
        "--listen-port=0",
    ]
    stand = [sys.executable, "-I", "-S", stand_in.__file__, "--listen-port", "one,two,called"]
    return [*stand, sys.executable, "-u", str(tmp_path / "agent.py"), *own]


def announced_port(tmp_path, service):
    path = tmp_path / f"{service}_{NODE}"
    until(path.exists, 60)
    return int(path.read_text())


def test_it_becomes_the_agent_at_the_first_connection_and_its_port_is_never_free(command, tmp_path):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert [announced_port(tmp_path, service) for service in ("one", "two")] == [-1, -1]
        port = announced_port(tmp_path, "called")
        # Not even a program that sets SO_REUSEADDR, which may listen beside a socket that is only
        # bound.
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
    with subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert int(parent.stdout.readline()) != parent.pid
        announced_port(tmp_path, "called")
        parent.send_signal(signal.SIGKILL)
        # Its output is the parent's: the pipe is at its end when both are gone.
        parent.stdout.read()


def test_lines_that_say_how_busy_instances_are_are_no_sign_of_life():
    busy = line(Metric(name="cpu_percent", value=1.0, host="algo-1"))
    loss = line(Metric(name="loss", value=1.0, step=3))
    assert measures_only(b"")
    assert measures_only(f"{busy}\n{busy}\n".encode())
    assert not measures_only(f"{busy}\n{loss}\n".encode())
    assert not measures_only(f"{busy}\nepoch 3\n".encode())
    assert not measures_only(b"epoch 3\n")
