"""Paths in an instance, the home, and the machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raysm.core.protocol.home import Clock, home
from raysm.core.protocol.job_api import APIS, PROCESSING
from raysm.core.protocol.paths import Paths


def test_a_training_jobs_files_lie_where_sagemaker_puts_them():
    paths = Paths()
    assert paths.resource_config == Path("/opt/ml/input/config/resourceconfig.json")
    assert paths.hyperparameters == Path("/opt/ml/input/config/hyperparameters.json")
    assert paths.input_data_config == Path("/opt/ml/input/config/inputdataconfig.json")
    assert paths.payload == Path("/opt/ml/input/data/raysm")
    assert paths.model == Path("/opt/ml/model")
    assert paths.failure == Path("/opt/ml/output/failure")
    assert paths.checkpoints == Path("/opt/ml/checkpoints")


def test_a_processing_jobs_files_lie_where_sagemaker_puts_them():
    paths = Paths(api=PROCESSING)
    assert paths.resource_config == Path("/opt/ml/config/resourceconfig.json")
    assert paths.description == Path("/opt/ml/config/processingjobconfig.json")
    assert paths.channel("matrix") == Path("/opt/ml/processing/input/matrix")
    assert paths.failure == Path("/opt/ml/output/message")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_recorded_of_finished_work_never_lies_in_what_is_uploaded_as_the_result(
    api, lasting
):
    paths = Paths(api=api)
    records = paths.records(lasting=lasting)
    assert records.is_relative_to(paths.checkpoints) == lasting
    assert not any(records.is_relative_to(output) for output in (paths.model, paths.output_data))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_the_layout_that_the_service_made_says_of_which_api_the_job_is(tmp_path, api):
    made = Paths(tmp_path, api)
    made.config.mkdir(parents=True)
    for file in (made.resource_config, *filter(None, [made.description])):
        file.write_text("{}")
    assert Paths.found_in(tmp_path) == made
    assert Paths.found_in(tmp_path).api is api


@pytest.mark.parametrize(
    ("variable", "explicit", "found"),
    [
        (None, None, "~/.raysm"),
        ("/elsewhere", None, "/elsewhere"),
        ("/elsewhere", "/here", "/here"),
        ("", None, "~/.raysm"),
    ],
)
def test_the_home_is_what_is_named_else_the_variables_else_the_users(
    monkeypatch, variable, explicit, found
):
    if variable is None:
        monkeypatch.delenv("RAYSM_HOME", raising=False)
    else:
        monkeypatch.setenv("RAYSM_HOME", variable)
    assert home(explicit) == Path(found).expanduser()


def test_a_fast_one_tells_more_seconds_than_pass():
    begun_s = time.time() - 10.0
    told_s = Clock(speed=60.0, begun_s=begun_s).now() - begun_s
    assert 600.0 <= told_s <= 60.0 * (time.time() - begun_s)
    assert Clock(speed=60.0).takes_s(3600.0) == 60.0


AUTOGROUP = Path("/proc/self/autogroup")

GO_FIRST = """
import os, subprocess, sys
from raysm.core.protocol.machine import go_first, others_first
def nice(): return open("/proc/self/autogroup").read().split()[-1]
if sys.argv[1:]:
    go_first()
    print(nice(), os.getsid(0) == os.getpid(), flush=True)
else:
    with others_first():
        print(nice(), flush=True)
    print(nice(), flush=True)
    subprocess.run([sys.executable, __file__, "worker"], check=True)
    print(nice())
"""


@pytest.mark.skipif(
    not AUTOGROUP.exists(), reason="the kernel shares the CPU among processes alone"
)
def test_a_session_gives_way_for_a_block_and_for_good_when_a_worker_leaves_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(GO_FIRST)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
        env=env,
    )
    assert ended.stdout.split() == ["10", "0", "0", "True", "10"]
