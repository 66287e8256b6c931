"""One run of the driver: why it ended, and what of that becomes the job's."""

import asyncio

import pytest

from raysm.bootstrap.children import Children
from raysm.bootstrap.driver import TAIL_BYTES, DriverRun
from tests.support.bootstraps import Cluster, request
from tests.support.own_process import run_apart

RECORD = """
import os, sys
from pathlib import Path
from raysm.contract.result import Failure
failure = Failure(error_type="{error}", message="no such column")
failure.write(Path(os.environ["RAYSM_FAILURE_RECORD"]))
raise SystemExit(1)
"""


def run(cluster, look, address="10.0.0.1:6379", go=None):
    """Return what ``look`` says of a run of the cluster's driver that has ended, and of how it ended."""

    async def scenario():
        children = Children()
        ended = asyncio.get_running_loop().create_future()
        driver = DriverRun(cluster.prepare("algo-1"), children, address, ended.set_result)
        try:
            if go:
                driver.go(go)
            return look(driver, await asyncio.wait_for(ended, 60))
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


@pytest.mark.parametrize(("error", "own"), [("ValueError", True), ("ray.exceptions.ActorDiedError", False)])
def test_a_failure_is_the_driver_s_own_unless_it_blames_the_cluster(tmp_path, error, own):
    cluster = Cluster(tmp_path, request(1), driver=RECORD.format(error=error))
    status = run(cluster, lambda driver, end: driver.own_exit_status())
    assert (status is not None) == own
    assert (cluster.recorded() is not None) == own


def test_stderr_goes_on_to_the_log_and_its_end_is_kept(tmp_path, capfdbinary):
    cluster = Cluster(tmp_path, request(1), driver="import sys; sys.stderr.write('x' * 20000 + 'the end'); sys.exit(2)")
    status, tail = run(cluster, lambda driver, end: (end.status, driver.tail()))
    assert status == 2
    assert len(tail) == TAIL_BYTES
    assert tail.endswith("xthe end")
    assert len(capfdbinary.readouterr().err) == 20007


def test_a_grandchild_that_keeps_stderr_open_delays_nothing_and_a_progress_bar_and_a_print_are_lines(
    tmp_path, capfdbinary
):
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60'])"
    bar = "; sys.stderr.write('\\r10%\\r20%'); print('step'); sys.stderr.write('\\r30%\\n')"
    assert run(Cluster(tmp_path, request(1), driver=code + bar), lambda driver, end: end.status) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == b"step\n"
    assert captured.err == b"10%\n30%\n"
