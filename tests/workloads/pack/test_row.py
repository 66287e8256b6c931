"""One row in a worker process: its script, its folders, and that it fails alone."""

import json
import os

import pytest

from raysm.contract.result import RowOutcome
from raysm.request.pack import PackedRow
from raysm.workloads.pack.row import RowBlock, run_row, sizes_below
from tests.support.bootstraps import write_training

SCRIPT = """
import json, os, pathlib, sys
if sys.argv[1:] == ["fail"]:
    raise SystemExit("these data are broken")
if sys.argv[1:] == ["hang"]:
    import time
    time.sleep(600)
model = pathlib.Path(os.environ["SM_MODEL_DIR"])
assert model.is_dir() and not list(model.iterdir())
(model / "deep").mkdir()
(model / "deep" / "weights").write_text(" ".join(sys.argv[1:]))
seen = [json.loads(os.environ["SM_HPS"]), *[os.environ[name] for name in ("SM_HP_LR", "OWN", "SM_MODEL_DIR")]]
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "seen.json").write_text(json.dumps(seen))
state = pathlib.Path(os.environ["RAYSM_STATE"], "epoch")
state.write_text(str(int(state.read_text()) + 1) if state.exists() else "0")
print("done")
"""


@pytest.fixture
def place(tmp_path):
    """An instance's base folder, with a source that has arrived."""
    paths = write_training(tmp_path, "algo-1", ["algo-1"])
    source = paths.payload / "source"
    source.mkdir(parents=True)
    (source / "train.py").write_text(SCRIPT)
    before = dict(os.environ)
    whole = {"hps": {"depth": 2}, "model_dir": "the job's"}
    os.environ |= {"SAGEMAKER_BASE_DIR": str(tmp_path), "SM_TRAINING_ENV": json.dumps(whole)}
    yield paths
    os.environ.clear()
    os.environ.update(before)


def block(*args, limit_s=300, **changes):
    row = PackedRow(
        key="größe/1", name="abcdefgh", args=args, max_runtime_s=limit_s,
        hyperparameters={"lr": "0.1"}, environment={"OWN": "mine"}, **changes,
    )  # fmt: skip
    return RowBlock(row, "train.py")


def test_its_files_lie_in_a_folder_of_its_own_and_its_lines_bear_its_key(place, capsys):
    outcome = run_row(block("--lr", "0.1"))
    folder = place.rows / "abcdefgh"
    assert (outcome.state, outcome.reason, outcome.host) == ("done", "", "algo-1")
    assert outcome.files == dict(sizes_below(folder))
    assert set(outcome.files) == {"model/deep/weights", "data/seen.json"}
    assert (folder / "model" / "deep" / "weights").read_text() == "--lr 0.1"
    hps, lr, own, model = json.loads((folder / "data" / "seen.json").read_text())
    assert (hps, lr, own) == ({"depth": 2, "lr": 0.1}, "0.1", "mine")
    assert not os.path.exists(model)
    assert capsys.readouterr().out == "[größe/1] done\n"


def test_one_that_fails_says_why_and_leaves_nothing(place):
    outcome = run_row(block("fail"))
    assert (outcome.state, outcome.files) == ("failed", {})
    assert outcome.reason == "the script ended with 1: these data are broken"
    assert not (place.rows / "abcdefgh" / "model").exists()


def test_one_that_takes_too_long_is_ended(place):
    outcome = run_row(block("hang", limit_s=1))
    assert outcome.state == "failed"
    assert "longer than its 1 s (max_runtime_s)" in outcome.reason


def test_a_row_that_is_run_again_replaces_its_files_and_finds_its_state(place):
    assert run_row(block("first")).state == "done"
    assert run_row(block("second")).state == "done"
    folder = place.rows / "abcdefgh"
    assert (folder / "model" / "deep" / "weights").read_text() == "second"
    assert (folder / "state" / "epoch").read_text() == "1"


def test_what_the_disk_refuses_is_the_rows_own_failure(place):
    place.rows.parent.mkdir(parents=True)
    place.rows.write_text("a file where a folder should be")
    outcome = run_row(block("x"))
    assert isinstance(outcome, RowOutcome)
    assert outcome.state == "failed"
    assert "Error" in outcome.reason


def test_its_name_in_messages_holds_nothing_of_its_environment():
    assert str(block("x")) == "row größe/1"
