"""Scripts that run in their state folder."""

import dataclasses

import pytest

from raysm.bootstrap import environment
from raysm.contract import names
from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Script
from raysm.workloads import folders
from raysm.workloads.folders import RECORD, fill_folders, make_state_folder
from tests.support.driving import drive
from tests.support.payloads import pack_payload


@pytest.fixture
def here(instance):
    told = environment.read({names.BASE_DIR: str(instance.base)})
    return dataclasses.replace(told, has_checkpoints=True)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "labels").mkdir(parents=True)
    (folder / "main.py").write_text("first")
    (folder / "labels" / "names.txt").write_text("cat")
    return folder


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECORD
    }


def test_the_source_lies_in_the_state_folder_and_follows_the_source_of_the_next_run(here, source):
    folder = make_state_folder(here, source, pytest.fail)
    assert folder == here.paths.state("algo-1")
    assert files_of(folder) == {"main.py": "first", "labels/names.txt": "cat"}
    (folder / "checkpoint.pth.tar").write_text("epoch 1")
    (source / "main.py").write_text("second")
    (source / "labels" / "names.txt").unlink()
    make_state_folder(here, source, pytest.fail)
    assert files_of(folder) == {"main.py": "second", "checkpoint.pth.tar": "epoch 1"}


def test_a_checkpoint_of_a_name_that_the_source_has_too_is_kept_and_named(here, source):
    (source / "checkpoint.pth.tar").write_text("of an earlier run on the laptop")
    folder = make_state_folder(here, source, pytest.fail)
    (folder / "checkpoint.pth.tar").write_text("epoch 1")
    said = []
    for _ in range(2):
        make_state_folder(here, source, said.append)
        assert (folder / "checkpoint.pth.tar").read_text() == "epoch 1"
    assert [text.endswith("differ from the source's: checkpoint.pth.tar") for text in said] == [True, True]


def test_what_a_training_leaves_in_its_state_folder_is_in_the_result_and_stays(here, source):
    folder = folders.link_state_folder(here, source, pytest.fail)
    (folder / "runs").mkdir()
    (folder / "runs" / "log").write_text("x")
    (folder / "best.pt").write_text("weights")
    assert folders.save_outputs(here) == ["best.pt", "runs"]
    assert files_of(here.paths.model) == {"best.pt": "weights", "runs/log": "x"}
    assert (folder / "best.pt").read_text() == "weights"


def test_arguments_name_the_folders_of_the_state_and_of_the_inputs(here):
    here = dataclasses.replace(here, channels=("train",))
    state, train = here.paths.state("algo-1"), here.paths.channel("train")
    assert fill_folders(("--to={state}/a", "{channel_train}", '{"a": 1}'), here) == (
        f"--to={state}/a",
        str(train),
        '{"a": 1}',
    )
    with pytest.raises(InvalidRequest, match=r"'\{state\}' names the state of a job that has no checkpoints"):
        fill_folders(("{state}",), dataclasses.replace(here, has_checkpoints=False))


def test_a_script_on_the_head_runs_in_its_state_folder(instance, tmp_path):
    (instance.config / "checkpointconfig.json").write_text('{"LocalPath": "/opt/ml/checkpoints", "S3Uri": "s3://b/c"}')
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(os.path.samefile('.', os.environ['HERE']), os.path.exists('train.py'), sys.argv[1])\n"
    )
    workload = Script(str(tmp_path / "train.py"), in_state=True, args=("{state}",))
    pack_payload(JobRequest(name="job", workload=workload), instance.payload)
    state = instance.state("algo-1")
    done, _ = drive(instance, tmp_path, HERE=str(state))
    assert done.stdout == f"True True {state}\n", done.stderr
