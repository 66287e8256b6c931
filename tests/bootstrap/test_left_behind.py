"""The warning of files that are lost with the working folder."""

import os
from types import SimpleNamespace

import pytest

from raysm.bootstrap.outputs import warn_of_lost_files
from raysm.contract.paths import Paths
from raysm.request import Script, Similarity

BEGUN_S = 1_000_000_000.0


@pytest.fixture
def instance(tmp_path):
    paths = Paths(tmp_path / "ml")
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").touch()
    os.utime(source / "train.py", (BEGUN_S - 60, BEGUN_S - 60))
    return SimpleNamespace(
        name="algo-1",
        request=SimpleNamespace(workload=Script("train.py")),
        environment=SimpleNamespace(paths=paths, has_checkpoints=True),
        payload=SimpleNamespace(source=source),
    )


def test_files_that_a_script_left_in_its_working_folder_are_named(instance):
    (instance.payload.source / "checkpoint.pth.tar").touch()
    (instance.environment.paths.working / "runs").mkdir(parents=True)
    (instance.environment.paths.working / "runs" / "log").touch()
    (instance.environment.paths.working / "train.py").symlink_to(instance.payload.source / "train.py")
    assert warn_of_lost_files(instance, BEGUN_S) == (
        "warning: files in the working folder of algo-1 are lost now: checkpoint.pth.tar, runs/log; write results to "
        "$SM_MODEL_DIR and checkpoints to $RAYSM_STATE; or use --in-state"
    )


def test_of_a_state_folder_nothing_is_lost(instance, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checkpoint.pth.tar").touch()
    instance.environment.paths.working.parent.mkdir(parents=True)
    instance.environment.paths.working.symlink_to(tmp_path / "state")
    assert warn_of_lost_files(instance, BEGUN_S) is None


def test_a_workload_without_a_script_is_asked_for_its_working_folder_alone(instance):
    instance.request.workload = Similarity(top_k=3)
    (instance.payload.source / "x").touch()
    assert warn_of_lost_files(instance, BEGUN_S) is None
