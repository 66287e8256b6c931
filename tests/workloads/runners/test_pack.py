"""Rows that share a job, as the driver runs them; tests/workloads/pack has their parts."""

import os
import shutil
from pathlib import Path

import pytest

from raysm.contract import payload
from raysm.contract.paths import Paths
from raysm.contract.result import ROW_RECORD, Manifest, RowOutcome, outcomes_in, outcomes_text
from raysm.request import JobRequest
from raysm.request.pack import Pack, PackedRow
from raysm.workloads.runner import load_runner
from raysm.workloads.runners.pack import PackRunner
from tests.support.driving import drive, payload_of

SCRIPT = """
import os, pathlib, sys
with open(os.environ["RAN"], "a") as ran:
    ran.write(sys.argv[1] + " ")
if sys.argv[1] == "bad":
    sys.exit("broken")
pathlib.Path(os.environ["SM_MODEL_DIR"], "out").write_text(sys.argv[1])
"""


def pack_of(*keys, script="train.py"):
    variables = {"RAN": str(Path(script).with_name("ran"))}
    rows = tuple(
        PackedRow(key=key, name=f"name-{key}", args=(key,), max_runtime_s=300, environment=variables) for key in keys
    )
    return Pack(str(script), rows=rows, cpus=0.5)


def test_rows_are_run_by_this_runner():
    assert isinstance(load_runner(payload_of(pack_of("a")), None), PackRunner)


@pytest.fixture
def paths(base, tmp_path):
    """An instance with the payload of three rows, and nothing among its checkpoints."""
    paths = Paths(base)
    shutil.rmtree(paths.payload, ignore_errors=True)
    shutil.rmtree(paths.rows, ignore_errors=True)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    payload.pack(JobRequest(name="pack", workload=pack_of("a", "bad", "c", script=script)), paths.payload)
    yield paths
    shutil.rmtree(paths.rows, ignore_errors=True)


@pytest.mark.usefixtures("address")
def test_a_row_that_fails_fails_alone_and_the_next_run_does_none_again(paths, tmp_path):
    done, failure = drive(paths, tmp_path, HOME=os.environ["HOME"])
    assert (done.returncode, failure) == (0, None), done.stderr
    outcomes = outcomes_in((paths.rows / ROW_RECORD).read_bytes())
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "name-a": "done",
        "name-bad": "failed",
        "name-c": "done",
    }
    assert outcomes["name-bad"].reason == "the script ended with 1: broken"
    assert (paths.rows / "name-c" / "model" / "out").read_text() == "c"
    assert "row bad failed" in done.stderr
    manifest = Manifest.read(paths.model)
    assert outcomes_in((paths.model / ROW_RECORD).read_bytes()) == outcomes
    assert manifest.measures == {"rows": 3.0, "failed_rows": 1.0, "resumed_rows": 0.0}
    # As after an interruption: what is recorded is not run again, what was only begun is.
    again = {name: outcome for name, outcome in outcomes.items() if name != "name-c"}
    (paths.rows / ROW_RECORD).write_text(outcomes_text(again | {"name-c": RowOutcome(state="running")}))
    # New instances begin with an empty model folder; what is among the checkpoints comes back.
    shutil.rmtree(paths.model)
    paths.model.mkdir()
    done, failure = drive(paths, tmp_path, HOME=os.environ["HOME"])
    assert (done.returncode, failure) == (0, None), done.stderr
    # By what the programs themselves have noted: their lines may come after the driver's end.
    assert sorted((tmp_path / "ran").read_text().split()) == ["a", "bad", "c", "c"]
    assert Manifest.read(paths.model).measures["resumed_rows"] == 2.0
    assert outcomes_in((paths.rows / ROW_RECORD).read_bytes())["name-c"].state == "done"
