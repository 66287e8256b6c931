"""How long a job takes to begin, as the manifest tells it."""

import subprocess
import sys

import pytest

from raysm.bootstrap import environment as environments
from raysm.contract import names
from raysm.workloads.beginning import START_S, Beginning
from tests.support.bootstraps import write_training


@pytest.fixture
def told(tmp_path):
    """Return what an instance is told whose container began at a moment, or that knows of none."""
    write_training(tmp_path, "algo-1", ["algo-1"])

    def told(**variables):
        return environments.read({names.BASE_DIR: str(tmp_path), **variables})

    return told


@pytest.fixture(autouse=True)
def unnoted():
    """Each test is a driver of its own."""
    yield
    Beginning._measures = {}


def test_nothing_is_told_where_nobody_knows_when_the_container_began(told):
    Beginning.note(told())
    assert Beginning.measures() == {}


@pytest.mark.parametrize(("now_s", "start_s"), [(1012.3456, 12.346), (990.0, 0.0)])
def test_it_is_the_time_from_the_first_program_to_the_workload_and_never_negative(told, now_s, start_s):
    Beginning.note(told(RAYSM_BEGAN="1000.0"), now_s)
    assert Beginning.measures() == {START_S: start_s}


def test_a_moment_that_is_none_ends_no_job(told):
    assert told(RAYSM_BEGAN="yesterday").began_s is None


def test_the_manifest_of_what_is_left_has_it(tmp_path):
    code = f"""
import sys, time
from pathlib import Path
from types import SimpleNamespace
from raysm.request import JobRequest, Script
from raysm.workloads.beginning import Beginning
from raysm.workloads.left_files import write_manifest
folder = Path({str(tmp_path)!r})
(folder / "left.txt").write_text("x")
Beginning.note(SimpleNamespace(began_s=time.time() - 5.0))
request = JobRequest(name="job", workload=Script("train.py"))
manifest = write_manifest(request, folder, instances=("algo-1",), phases_s={{}}, measures={{"rows": 3.0}})
print(manifest.measures["rows"], 5.0 <= manifest.measures["start_s"] < 60.0)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.split() == ["3.0", "True"]
