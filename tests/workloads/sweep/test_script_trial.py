"""A trial of a script."""

import argparse
from types import SimpleNamespace

import pytest

import raysm
from raysm.contract.paths import Paths
from raysm.errors import TrialFailed
from raysm.request.sweep import ScriptSweep
from raysm.workloads.sweep.trial import arguments_of, run_script
from tests.support.sweeps import run

SCRIPT = """
import argparse
import os
import pathlib
import raysm

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()
for epoch in range(given.epochs):
    print("epoch", epoch)
    raysm.report(loss=given.lr / (epoch + 1), step=epoch)
pathlib.Path(os.environ["SM_MODEL_DIR"], "model.txt").write_text(str(given.lr))
"""


class Run(SimpleNamespace):
    """A trial as far as a script's needs it."""

    def take(self, report):
        self.taken.append(report)


def run_of(folder, code, params=None, args=()):
    paths = Paths(folder)
    source = paths.payload / "source"
    source.mkdir(parents=True)
    (source / "train.py").write_text(code)
    workload = ScriptSweep(script="train.py", args=args, space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min")
    return Run(
        workload=workload,
        here=SimpleNamespace(payload=paths.payload),
        assignment=SimpleNamespace(params=params or {}),
        taken=[],
    )


def test_parameters_are_arguments_and_flags():
    params = {"lr": 0.1, "batch_size": 32, "nesterov": True, "warmup": False, "decay": None, "kind": "a b"}
    assert arguments_of(params) == ["--lr=0.1", "--batch-size=32", "--nesterov", "--kind=a b"]


def test_argparse_takes_values_that_begin_with_a_dash():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shift", type=float)
    parser.add_argument("--layer")
    given = parser.parse_args(arguments_of({"shift": -1.6e-05, "layer": "-relu"}))
    assert (given.shift, given.layer) == (-1.6e-05, "-relu")


def test_its_lines_are_told_and_its_exit_code_is_the_trials(tmp_path, capsys):
    code = "import sys\nprint('one', *sys.argv[1:])\nprint('two', file=sys.stderr)\nsys.exit(3)"
    one = run_of(tmp_path, code, {"lr": 0.5}, args=["--epochs", "2"])
    with pytest.raises(TrialFailed, match="the script ended with 3: two") as failed:
        run_script(one)
    assert failed.value.remote_traceback == "one --lr=0.5 --epochs 2\ntwo"
    assert capsys.readouterr().out == "one --lr=0.5 --epochs 2\ntwo\n"


def test_what_a_script_reports_and_leaves_is_the_trials(base, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    sweep = raysm.Sweep(
        raysm.Script(str(script), args=["--epochs", 3]),
        space={"lr": raysm.choice([0.5, 0.1])},
        metric="loss",
        mode="min",
        search="grid",
    )
    outcome, _, _ = run(sweep, base, tmp_path / "kept")
    trials = [entry.trial for entry in outcome.entries]
    assert [(trial.params["lr"], trial.status, trial.reports) for trial in trials] == [
        (0.5, "done", 3),
        (0.1, "done", 3),
    ]
    assert trials[1].value == pytest.approx(0.1 / 3)
    (model,) = (tmp_path / "kept").rglob("model.txt")
    assert model.read_text() == "0.1"
