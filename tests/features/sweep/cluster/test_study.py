"""A sweep and its trials: what is tried next, which end early, and what survives an interruption."""

import argparse
import math
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import raysm
from raysm.core.protocol.events import BEST, TABLE, TRIALS, Trial, Trials
from raysm.core.protocol.paths import Paths
from raysm.errors import InvalidRequest, TrialFailed
from raysm.features.sweep.cluster.run import Outcome
from raysm.features.sweep.cluster.study import Entry, Population, Study, drawing_by
from raysm.features.sweep.cluster.trial import (
    HeadFiles,
    TrialRun,
    download,
    find_metrics,
    run_script,
    serve_files,
    to_arguments,
    upload,
)
from raysm.features.sweep.request import Earlier, FunctionSweep, ScriptSweep
from raysm.features.sweep.runner import summarize, write_result
from raysm.instance.work.folders import PIECE_BYTES
from raysm.instance.work.report import Report, parse, report_line, report_of
from tests.support.sweeps import run

SPACE = {
    "lr": raysm.loguniform(1e-4, 1e-1),
    "q": raysm.qloguniform(1, 64, 3),
    "n": raysm.randint(1, 4),
    "kind": raysm.choice(["a", "b", None]),
}
LINE = {"x": raysm.uniform(0, 1)}


def workload(**fields):
    return ScriptSweep(
        **{"script": "train.py", "space": SPACE, "metric": "loss", "mode": "min"} | fields
    )


@pytest.fixture
def study(tmp_path):
    """Open studies, each in a folder of its own unless it is named."""
    folders = []

    def opened(draw=None, folder=None, **fields):
        folders.append(folder or tmp_path / str(len(folders)))
        return Study(workload(**fields), draw, folders[-1])

    return opened


def ended(entry, value, status="done"):
    return replace(entry, trial=replace(entry.trial, status=status, value=value, reports=2))


def drawn(study, count=12):
    params = []
    for _ in range(count):
        entry = study.next()
        study.finish(ended(entry, entry.trial.params["lr"]))
        params.append(entry.trial.params)
    return params


def trials(study):
    return study._study.trials


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_a_seed_repeats_the_search(study, search):
    first = drawn(study(search=search, seed=7))
    assert first == drawn(study(search=search, seed=7))
    assert first != drawn(study(search=search, seed=8))
    assert all(1e-4 <= params["lr"] <= 1e-1 and (params["q"] - 1) % 3 == 0 for params in first)


def test_trials_of_another_sweep_are_kept_and_refused(study, tmp_path):
    drawn(study(folder=tmp_path / "kept"), 2)
    with pytest.raises(InvalidRequest, match="another sweep: .*arguments"):
        study(folder=tmp_path / "kept", metric="accuracy")
    assert len(study(folder=tmp_path / "kept").entries) == 2


def test_a_grid_of_billions_begins_with_its_first_combinations(study):
    space = {"kind": raysm.choice(["a", "b"]), "seed": raysm.randint(0, 2**62)}
    opened = study(space=space, search="grid", trials=2)
    assert [opened.next().trial.params for _ in range(2)] == [
        {"kind": "a", "seed": 0},
        {"kind": "a", "seed": 1},
    ]


def test_a_grid_tries_every_combination_once_also_over_an_interruption(study, tmp_path):
    fields = {
        "space": {"n": raysm.randint(1, 2), "kind": raysm.choice(["a", "b"])},
        "search": "grid",
    }
    opened = study(folder=tmp_path / "kept", **fields)
    first, second = opened.next(), opened.next()
    opened.finish(ended(first, 1.0))
    opened.save(second)
    again = study(folder=tmp_path / "kept", **fields)
    assert [entry.trial.params for entry in again.interrupted] == [{"n": 1, "kind": "b"}]
    rest = [again.next(), again.next()]
    assert [(entry.trial.number, dict(entry.trial.params)) for entry in rest] == [
        (2, {"n": 2, "kind": "a"}),
        (3, {"n": 2, "kind": "b"}),
    ]
    assert again.next() is None


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_an_interrupted_sweep_continues_with_its_trials_and_draws_new_ones(study, tmp_path, search):
    fields = {"folder": tmp_path / "kept", "search": search, "seed": 7}
    before = study(**fields)
    done, with_files, without, unwritten = (before.next() for _ in range(4))
    before.finish(ended(done, 1.0))
    folder = before.files / "1" / "a"
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    before.save(replace(with_files, checkpoint="1/a", reports=3))
    before.save(without)
    # The last one was drawn and not written down, and the last line of the journal is incomplete.
    (journal,) = (tmp_path / "kept").rglob("journal.log")
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')
    again = study(**fields)
    assert {number: entry.trial.value for number, entry in again.entries.items()} == {0: 1.0}
    assert [
        (entry.trial.number, entry.checkpoint, entry.reports) for entry in again.interrupted
    ] == [
        (1, "1/a", 3),
        (2, None, 0),
        (3, None, 0),
    ]
    begun = [done, with_files, without, unwritten]
    assert [entry.trial.params for entry in again.interrupted] == [
        entry.trial.params for entry in begun[1:]
    ]
    new = [again.next() for _ in range(3)]
    assert [entry.trial.number for entry in new] == [4, 5, 6]
    assert len({entry.trial.params["lr"] for entry in (*begun, *new)}) == 7


def test_an_incomplete_checkpoint_is_not_used(study, tmp_path):
    before = study(folder=tmp_path / "kept")
    entry = before.next()
    (before.files / "0" / "a").mkdir(parents=True)
    (before.files / "0" / "a" / "model").write_text("weights")
    before.save(replace(entry, checkpoint="0/a", reports=3))
    (before.files / "0" / "a" / "model").write_text("weig")
    (again,) = study(folder=tmp_path / "kept").interrupted
    assert (again.trial.params, again.checkpoint, again.reports) == (entry.trial.params, None, 0)


def test_earlier_trials_are_learned_from_also_if_a_function_draws(study):
    def space(trial):
        return {"x": trial.suggest_float("x", 0, 1), "epochs": 3}

    earlier = tuple(Earlier(params={"x": x}, value=x) for x in (0.2, 0.8))
    for draw in (None, drawing_by(space, "space")):
        opened = study(draw, space=LINE, warm_start=earlier)
        assert [(trial.params, trial.value) for trial in trials(opened)] == [
            ({"x": 0.2}, 0.2),
            ({"x": 0.8}, 0.8),
        ]
        assert opened.next().trial.number == 0


def stops(study, *values):
    """Begin a trial; return after how many of these reports it was stopped, None if never."""
    entry = study.next()
    for count, value in enumerate(values, 1):
        if study.should_stop(entry.trial.number, value, count):
            return count
    study.finish(ended(entry, values[-1]))
    return None


@pytest.mark.parametrize(
    ("stop", "mode", "first", "second", "expected"),
    [
        ("asha", "min", [1.0] * 4, [2.0], 1),
        ("asha", "min", [1.0] * 4, [0.5, 0.5, 0.5, 2.0], 4),
        ("asha", "max", [1.0] * 4, [2.0] * 4, None),
        (raysm.Asha(grace=2, factor=3), "min", [1.0] * 6, [2.0, 2.0], 2),
        (raysm.Median(least_trials=1, grace=3), "min", [1.0] * 4, [2.0, 2.0, 2.0], 3),
        (None, "min", [1.0] * 4, [2.0] * 4, None),
    ],
)
def test_rules_end_the_worse_of_two_trials(study, stop, mode, first, second, expected):
    opened = study(stop=stop, mode=mode)
    assert stops(opened, *first) is None
    assert stops(opened, *second) == expected


def test_the_search_avoids_parameters_with_which_trials_diverged(study):
    opened = study(space=LINE, seed=1)

    def finish(entry):
        if entry.trial.params["x"] < 0.6:
            opened.finish(ended(entry, 1.0))
            return True
        reason = "loss is nan at step 1"
        trial = replace(entry.trial, status="stopped", reason=reason, metrics={"loss": math.nan})
        opened.finish(replace(entry, trial=trial))
        return False

    begun = [finish(opened.next()) for _ in range(60)]
    assert sum(begun[30:]) > sum(begun[:30])
    assert sum(begun[30:]) >= 25


def test_a_population_copies_the_best_to_the_worst_within_the_ranges():
    sweep = workload(space=LINE, search="random", stop=raysm.Pbt(every=2), trials=4, seed=1)
    population = Population(sweep.stop, sweep)
    assert [population.compares(reports) for reports in (1, 2, 3, 4)] == [False, True, False, True]

    def entry(number, value):
        trial = Trial(number=number, status="running", params={"x": 0.5}, value=value)
        return Entry(trial=trial, checkpoint=f"{number}/a", reports=2)

    assert population.compare(entry(0, 1.0)) is None
    assert population.compare(entry(1, 0.5)) is None
    assert population.compare(entry(2, 0.7)) is None
    copied = population.compare(entry(3, None))
    assert (copied.trial.number, copied.checkpoint, copied.reports, copied.trial.value) == (
        3,
        "1/a",
        2,
        0.5,
    )
    assert copied.trial.params["x"] != 0.5
    assert 0 <= copied.trial.params["x"] <= 1
    assert population.checkpoints == {f"{number}/a" for number in range(4)}
    population.leave(1)
    assert population.compare(entry(3, None)).checkpoint == "2/a"


TRIALS_OF_IT = [
    Trial(
        number=0, status="done", value=2.0, params={"lr": 0.1, "kind": "a"}, metrics={"loss": 2.0}
    ),
    Trial(number=1, status="failed", params={"lr": 0.2, "kind": 7}, reason="ValueError: no"),
    Trial(
        number=2,
        status="stopped",
        value=1.5,
        params={"lr": 0.3, "kind": "b"},
        metrics={"loss": 1.5, "rows": 3.0},
    ),
]


def swept(**fields):
    return ScriptSweep(
        **{
            "script": "train.py",
            "space": {"lr": raysm.uniform(0, 1)},
            "metric": "loss",
            "mode": "min",
        }
        | fields
    )


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files" / "2" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    return tmp_path / "files"


def outcome(**fields):
    entries = [Entry(trial=trial) for trial in TRIALS_OF_IT[:2]]
    entries.append(Entry(trial=TRIALS_OF_IT[2], checkpoint="2/checkpoint"))
    return Outcome(
        **{"entries": tuple(entries), "notes": ("short",), "seconds": 1.0, "resumed": 0} | fields
    )


def test_the_result_is_the_table_in_two_formats_and_the_best_trials_files(files, tmp_path):
    described = write_result(outcome(), swept(), files, tmp_path / "model")
    assert [(file.name, file.shape) for file in described] == [(TABLE, (3,)), (TRIALS, (3,))]
    trials = Trials.read(tmp_path / "model")
    assert (trials.best, trials.notes, list(trials.trials)) == (2, ("short",), TRIALS_OF_IT)
    assert (tmp_path / "model" / BEST / "model").read_text() == "weights"
    table = pq.read_table(tmp_path / "model" / TABLE)
    assert table.column("params.lr").to_pylist() == [0.1, 0.2, 0.3]
    assert table.column("metrics.rows").to_pylist() == [None, None, 3.0]


def test_the_summary_names_the_best_the_direction_and_the_failures():
    assert summarize(outcome(), swept()) == (
        "best of 3 trials (1 done, 1 ended early, 1 failed; lowest loss): loss = 1.5 with lr = 0.3, kind = b (trial 2)"
        ". 1 of 3 trials failed, trial 1 with: ValueError: no"
    )
    assert "highest loss): loss = 2 with" in summarize(outcome(), swept(mode="max"))
    part = summarize(outcome(), swept(space={"n": raysm.randint(1, 4)}, search="grid"))
    assert part.startswith("best of 3 trials, 3 of 4 combinations (1 done, ")
    assert (
        summarize(outcome(entries=(Entry(trial=TRIALS_OF_IT[1]),)), swept()) == "1 trial: 1 failed"
    )


@pytest.mark.parametrize(
    ("value", "metrics"),
    [
        (0.5, {"loss": 0.5}),
        (3, {"loss": 3.0}),
        (torch.tensor([0.25]), {"loss": 0.25}),
        (np.float32(0.5), {"loss": 0.5}),
        ({"loss": 1, "rows": np.int64(7), "name": "a", "ok": True}, {"loss": 1.0, "rows": 7.0}),
        (None, {}),
        (True, {}),
        ("0.5", {}),
        (torch.zeros(3), {}),
        (print, {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_functions_value_is_the_metric_or_several_by_name(value, metrics):
    assert find_metrics(value, "loss") == metrics


def test_a_population_needs_a_checkpoint_with_each_report(tmp_path):
    space = {"x": raysm.uniform(0, 1)}
    workload = FunctionSweep(
        name="train", python="3.11", space=space, metric="loss", mode="min", stop="pbt"
    )
    run = TrialRun(workload=workload, here=None, assignment=None, folder=tmp_path, deliver=print)
    with pytest.raises(InvalidRequest, match="stop='pbt'"):
        run.take(Report(metrics={"loss": 1.0}))


def test_checkpoints_travel_to_the_head_and_back(ray_here, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "empty").write_bytes(b"")
    (source / "whole").write_bytes(os.urandom(PIECE_BYTES))
    (source / "deep" / "large").write_bytes(os.urandom(PIECE_BYTES * 2 + 5))
    files = serve_files(tmp_path / "root", ray_here.get_runtime_context().get_node_id())
    upload(files, source, "3/abc")
    assert [path.name for path in (tmp_path / "root" / "3").iterdir()] == ["abc"]
    download(files, "3/abc", tmp_path / "back")
    ray_here.kill(files)
    for name in ("empty", "whole", "deep/large"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()


def test_paths_outside_of_the_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="outside"):
        HeadFiles(str(tmp_path / "root")).write("../secret", "file", b"")


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
    workload = ScriptSweep(
        script="train.py", args=args, space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min"
    )
    return Run(
        workload=workload,
        here=SimpleNamespace(
            payload=paths.payload, paths=paths, channels=("data",), has_checkpoints=False
        ),
        assignment=SimpleNamespace(params=params or {}),
        taken=[],
    )


def test_parameters_are_arguments_and_flags():
    params = {
        "lr": 0.1,
        "batch_size": 32,
        "nesterov": True,
        "warmup": False,
        "decay": None,
        "kind": "a b",
    }
    assert to_arguments(params) == ["--lr=0.1", "--batch-size=32", "--nesterov", "--kind=a b"]
    args = ["--batch_size={batch_size}", "{other}"]
    assert to_arguments({"lr": 0.1, "batch_size": 32}, args) == [
        "--lr=0.1",
        "--batch_size=32",
        "{other}",
    ]


def test_argparse_takes_values_that_begin_with_a_dash():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shift", type=float)
    parser.add_argument("--layer")
    given = parser.parse_args(to_arguments({"shift": -1.6e-05, "layer": "-relu"}))
    assert (given.shift, given.layer) == (-1.6e-05, "-relu")


def test_its_lines_are_told_and_its_exit_code_is_the_trials(tmp_path, capsys):
    code = "import sys\nprint('one', *sys.argv[1:])\nprint('two', file=sys.stderr)\nsys.exit(3)"
    one = run_of(tmp_path, code, {"lr": 0.5}, args=["--epochs", "2", "{channel_data}"])
    with pytest.raises(TrialFailed, match="3: two") as failed:
        run_script(one)
    said = f"one --lr=0.5 --epochs 2 {Paths(tmp_path).channel('data')}\ntwo"
    assert failed.value.remote_traceback == said
    assert capsys.readouterr().out == f"{said}\n"


def test_a_parameter_that_the_script_spells_otherwise_fails_with_the_argument_to_add(tmp_path):
    code = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--step_size')\nparser.parse_args()"
    )
    one = run_of(tmp_path, code, {"step_size": 0.5})
    with pytest.raises(TrialFailed, match=r"--step-size=0.5; .* --step_size=\{step_size\}"):
        run_script(one)


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


def test_a_scripts_report_is_a_line_and_its_checkpoint_a_copy(tmp_path):
    folder, trial = tmp_path / "mine", tmp_path / "trial"
    folder.mkdir()
    trial.mkdir()
    (folder / "model").write_text("1")
    line = report_line(report_of({"loss": 0.5}, 3, folder), trial)
    (folder / "model").write_text("2")
    report = parse(line)
    assert (report.metrics, report.step) == ({"loss": 0.5}, 3)
    assert (trial / report.checkpoint / "model").read_text() == "1"


def test_a_checkpoint_outside_of_the_studys_folder_is_none_though_its_files_are_as_the_journal_says(
    study, tmp_path
):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").write_text("keep")
    first = study(folder=tmp_path / "s")
    entry = first.next()
    outside = os.path.relpath(tmp_path / "other", first.files)
    first.save(replace(entry, checkpoint=outside))
    (interrupted,) = study(folder=tmp_path / "s").interrupted
    assert interrupted.checkpoint is None
