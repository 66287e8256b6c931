"""The program that plays AWS's framework images, in a folder that plays ``/opt/ml``."""

import io
import json
import subprocess
import sys
import tarfile

import pytest

from raysm.local import framework_image
from raysm.local.framework_image import SUBMITTED, variables_of

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['SM_MODEL_DIR']]))"


@pytest.fixture
def root(tmp_path):
    for folder in ("input/config", "input/data", "output", "model"):
        (tmp_path / folder).mkdir(parents=True)
    configure(tmp_path, "resourceconfig", {"hosts": ["algo-1"], "current_host": "algo-1"})
    configure(tmp_path, "inputdataconfig", {"train": {}})
    return tmp_path


def configure(root, name, content):
    (root / "input/config" / f"{name}.json").write_text(json.dumps(content))


def run(root, **hyperparameters):
    configure(root, "hyperparameters", hyperparameters)
    return subprocess.run(
        [sys.executable, framework_image.__file__, str(root)], capture_output=True, text=True, timeout=100
    )


def submit(root, script, name="train.py"):
    """Put a script where the service brings what lay in S3."""
    folder = root / "input/data" / SUBMITTED
    folder.mkdir()
    content = script.encode()
    with tarfile.open(folder / "sourcedir.tar.gz", "w:gz") as archive:
        item = tarfile.TarInfo(name)
        item.size = len(content)
        archive.addfile(item, io.BytesIO(content))
    return {"sagemaker_program": name, SUBMITTED: "s3://bucket/sourcedir.tar.gz"}


def test_the_script_is_run_among_its_code_with_its_hyperparameters_as_arguments(root):
    done = run(root, epochs="3", rate="0.5", x="1", **submit(root, SHOW))
    assert done.returncode == 0, done.stderr
    arguments, folder, model = json.loads(done.stdout)
    assert arguments == ["--epochs", "3", "--rate", "0.5", "-x", "1"]
    assert (folder, model) == (str(root / "code"), str(root / "model"))


def test_code_may_lie_in_a_channel(root):
    (root / "input/data/code").mkdir()
    (root / "input/data/code/go.sh").write_text("echo ran $1 $2")
    done = run(root, a="1", sagemaker_program="go.sh", sagemaker_submit_directory=str(root / "input/data/code"))
    assert done.stdout == "ran -a 1\n"


def test_a_failure_stands_in_its_file_with_the_end_of_what_the_script_said(root):
    done = run(root, **submit(root, "raise ValueError('odd data')"))
    failure = (root / "output/failure").read_text()
    assert done.returncode == 1
    assert failure.startswith("ExecuteUserScriptError:\nExitCode 1\n")
    assert "ValueError: odd data" in failure


def test_a_program_that_is_not_there_is_named(root):
    names = submit(root, SHOW)
    done = run(root, **{**names, "sagemaker_program": "other.py"})
    assert done.returncode == 1
    assert "sagemaker_program='other.py' is not among the code: ['train.py']" in (root / "output/failure").read_text()


def test_the_variables_are_those_of_the_toolkit(root):
    variables = variables_of(root, {"lr": 0.1, "sagemaker_program": "train.py"}, "train.py", ["--lr", "0.1"])
    assert variables["SM_HPS"] == '{"lr": 0.1}'
    assert variables["SM_HP_LR"] == "0.1"
    assert variables["SM_CHANNEL_TRAIN"] == str(root / "input/data/train")
    assert variables["SM_HOSTS"] == '["algo-1"]'
    assert variables["SM_USER_ARGS"] == '["--lr", "0.1"]'
