"""An instance's life in a process apart: one exit code, one reason, and its events; whatever goes wrong."""

import json

import pytest

from raysm.bootstrap.exit_status import ExitStatus
from raysm.bootstrap.supervisor import begin, supervise
from raysm.contract import events
from raysm.contract.names import BASE_DIR
from raysm.contract.paths import Paths
from tests.support.bootstraps import Cluster, request, write_training
from tests.support.own_process import run_apart


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda paths: paths.resource_config.write_text("{"), "resourceconfig.json"),
        (lambda paths: paths.resource_config.write_text(json.dumps({"hosts": ["algo-1"]})), "current_host"),
        (lambda paths: None, "payload"),
    ],
    ids=["no JSON", "no host", "no payload"],
)
def test_what_cannot_begin_has_one_line_in_the_failure_file(tmp_path, spoil, words, capfd):
    paths = write_training(tmp_path, "algo-1", ["algo-1"])
    paths.failure.parent.mkdir(parents=True, exist_ok=True)
    spoil(paths)
    status = begin({BASE_DIR: str(tmp_path), "RAYSM_SCRATCH": str(tmp_path / "scratch")})
    assert isinstance(status, ExitStatus)
    assert status.exit_code == 2
    reason = Paths(tmp_path).failure.read_text()
    assert words in reason
    assert "Traceback" not in reason
    assert words in capfd.readouterr().err


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
