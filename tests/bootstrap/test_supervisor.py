"""An instance's life in a process apart: one exit code, one reason, and its events; whatever goes wrong."""

import pytest

from raysm.bootstrap.supervisor import supervise
from raysm.contract import events
from tests.support.bootstraps import Cluster, request
from tests.support.own_process import run_apart


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (3, "failed")])
def test_the_end_of_the_driver_is_the_exit_code_the_reason_and_the_last_event(tmp_path, capfd, code, state):
    cluster = Cluster(tmp_path, request(1), driver=f"raise SystemExit({code})")
    status = run_apart(lambda: supervise(cluster.prepare("algo-1")))
    assert status.exit_code == code
    assert (cluster.failure("algo-1") is None) == (code == 0)
    out, err = capfd.readouterr()
    heard = [event for event in map(events.parse, out.splitlines()) if event]
    assert heard[-1].name == state
    assert any(getattr(event, "name", "") == "peak_memory_bytes" for event in heard)
    assert ("algo-1 failed: the driver exited with code 3" in err) == (code == 3)
