"""Sweeps run to their ends on one small Ray, as on a cluster."""

import math
import os
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import raysm
from raysm.core.protocol.events import TABLE, TRIALS, Metric, Progress, Trial, Trials
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import Manifest
from raysm.errors import InvalidRequest, TrialFailed
from raysm.features.sweep.cluster import run as runs
from raysm.features.sweep.cluster.run import TrialSize, trials_at_once
from raysm.features.sweep.cluster.study import Study
from raysm.features.sweep.runner import apply_hyperparameters
from tests.support.driving import drive
from tests.support.sweeps import pack, run


def parabola(x, kind):
    return {"loss": (x - 3) ** 2, "kind": 1.0 if kind == "a" else 0.0}


def steps(config):
    for step in range(12):
        raysm.report(step=step, loss=config["x"] + 1 / (step + 1))


def ends_in_many_ways(x):
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as file:
        file.write(f"model of {x}")
    if x == 3:
        raise ValueError(f"{x} is below 5")
    raysm.report(loss=x)
    if x == 4:
        raysm.report(loss=float("nan"), step=7)
        raysm.report(loss=x)
    if x == 5:
        sys.exit(0)
    return float("nan") if x == 6 else None


def goes_on(x, marks):
    """Die with the process once, after the second report; go on from its checkpoint then."""
    folder = raysm.restored()
    begin = int((folder / "step").read_text()) + 1 if folder else 0
    for step in range(begin, 4):
        at = os.path.join(os.environ["RAYSM_TRIAL"], "own")
        os.makedirs(at, exist_ok=True)
        with open(os.path.join(at, "step"), "w") as file:
            file.write(str(step))
        with open(marks, "a") as file:
            file.write(f"{step}\n")
        raysm.report(step=step, loss=1 / (step + 1), checkpoint=at)
        if step == 1 and not folder:
            os._exit(9)


def marks_itself(x, marks):
    folder = raysm.restored()
    with open(marks, "a") as file:
        file.write(f"{x} {(folder / 'step').read_text() if folder else '-'}\n")
    return x


def grows(lr):
    """Add up ``lr``, with a checkpoint at every step."""
    folder = raysm.restored()
    begin, weight = (
        (0, 0.0) if folder is None else map(float, (folder / "state").read_text().split())
    )
    for step in range(int(begin), 8):
        weight += lr
        at = os.path.join(os.environ["RAYSM_TRIAL"], "own")
        os.makedirs(at, exist_ok=True)
        with open(os.path.join(at, "state"), "w") as file:
            file.write(f"{step + 1} {weight}")
        raysm.report(step=step, score=weight, checkpoint=at)


def only_accuracy(x):
    raysm.report(accuracy=x)


def ended(entry, **fields):
    return replace(entry, trial=replace(entry.trial, status="done", **fields))


def trials_of(outcome):
    return [entry.trial for entry in outcome.entries]


def test_each_trial_is_a_row_and_the_best_one_is_told_as_they_end(base, tmp_path):
    space = {"x": raysm.uniform(0, 10), "kind": raysm.choice(["a", "b"])}
    sweep = raysm.Sweep(parabola, space=space, metric="loss", mode="min", trials=5, seed=1)
    outcome, _, told = run(sweep, base, tmp_path)
    trials = trials_of(outcome)
    assert [trial.number for trial in trials] == [0, 1, 2, 3, 4]
    assert {trial.status for trial in trials} == {"done"}
    assert all(abs(trial.value - (trial.params["x"] - 3) ** 2) < 1e-9 for trial in trials)
    ended = [event for event in told if isinstance(event, Trial) and event.status == "done"]
    assert sorted(event.number for event in ended) == [0, 1, 2, 3, 4]
    best = [event.value for event in told if isinstance(event, Metric)]
    assert best == sorted(best, reverse=True)
    assert best[-1] == min(trial.value for trial in trials)
    assert [event.done for event in told if isinstance(event, Progress)] == [0, 1, 2, 3, 4, 5]


REPORT = "import raysm, sys; raysm.report(loss=float(sys.argv[1]))"


@pytest.mark.parametrize("is_command", [False, True])
def test_a_shell_script_or_a_command_is_swept(base, tmp_path, is_command):
    script = tmp_path / "train.sh"
    script.write_text(f"exec {sys.executable} -c '{REPORT}' $1")
    words = (
        {"args": ["-c", script.read_text(), "sh", "{x}"], "command": True}
        if is_command
        else {"args": ["{x}"]}
    )
    program = raysm.Script("sh" if is_command else str(script), **words)
    sweep = raysm.Sweep(
        program,
        space={"x": raysm.choice([1, 2])},
        metric="loss",
        mode="min",
        trials=2,
        search="grid",
    )
    outcome, _, _ = run(sweep, base, tmp_path)
    assert sorted((trial.status, trial.value) for trial in trials_of(outcome)) == [
        ("done", 1.0),
        ("done", 2.0),
    ]


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(raysm.Asha(factor=2), id="asha"),
        pytest.param(raysm.Median(least_trials=2), id="median", marks=pytest.mark.long),
    ],
)
def test_the_worst_are_ended_early(base, tmp_path, stop):
    sweep = raysm.Sweep(
        steps,
        space={"x": raysm.uniform(0, 10)},
        metric="loss",
        mode="min",
        trials=10,
        stop=stop,
        seed=3,
    )
    outcome, _, _ = run(sweep, base, tmp_path)
    trials = trials_of(outcome)
    assert {trial.status for trial in trials} == {"done", "stopped"}
    # Some as late as at their last report: two that run beside each other learn of each other only
    # as they go.
    assert min(trial.reports for trial in trials if trial.status == "stopped") < 12


def test_in_a_population_the_worst_go_on_with_the_weights_of_the_best(base, tmp_path):
    # More trials than there is room for: they take turns.
    sweep = raysm.Sweep(
        grows,
        space={"lr": raysm.uniform(0.1, 1.0)},
        metric="score",
        mode="max",
        trials=5,
        stop=raysm.Pbt(every=2),
        seed=1,
    )
    outcome, _, told = run(sweep, base, tmp_path)
    trials = trials_of(outcome)
    assert [(trial.number, trial.status) for trial in trials] == [
        (number, "done") for number in range(5)
    ]
    assert all(trial.metrics == {"score": trial.value} for trial in trials)
    begun = {
        event.number: event.params["lr"]
        for event in told
        if isinstance(event, Trial) and event.value is None
    }
    varied = [trial for trial in trials if trial.params["lr"] != begun[trial.number]]
    assert varied
    # Neither its first parameter nor its last one alone explains how far it came: the weights were
    # another one's.
    for trial in varied:
        assert abs(trial.value - 8 * begun[trial.number]) > 1e-9
        assert abs(trial.value - 8 * trial.params["lr"]) > 1e-9
    assert all(0.1 <= trial.params["lr"] <= 1.0 for trial in trials)


def test_trials_fail_and_diverge_alone_each_with_its_reason_and_the_model_of_the_best_is_kept(
    base, tmp_path
):
    sweep = raysm.Sweep(
        ends_in_many_ways,
        space={"x": raysm.randint(3, 7)},
        metric="loss",
        mode="min",
        trials=5,
        search="grid",
    )
    outcome, _, _ = run(sweep, base, tmp_path)
    assert [(trial.params["x"], trial.status, trial.reason) for trial in trials_of(outcome)] == [
        (3, "failed", "ValueError: 3 is below 5"),
        (4, "stopped", "loss is nan at step 7"),
        (5, "done", ""),  # as many main() functions end
        (6, "stopped", "loss is nan at report 2"),
        (7, "done", ""),
    ]
    assert outcome.entries[2].trial.value == 5.0
    assert [math.isnan(trial.metrics.get("loss", 0.0)) for trial in trials_of(outcome)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert [path.read_text() for path in tmp_path.rglob("model.txt")] == ["model of 5"]


def diverges(x):
    raysm.report(loss=1.0)
    raysm.report(loss=float("inf"))
    raise AssertionError("a trial went on after it had diverged")


def test_a_sweep_all_of_whose_trials_diverge_fails_with_the_first_of_them(base, tmp_path):
    sweep = raysm.Sweep(
        diverges, space={"x": raysm.uniform(0, 1)}, metric="loss", mode="min", trials=2
    )
    with pytest.raises(
        TrialFailed, match="2 trials failed or diverged; .*: loss is inf at report 2"
    ):
        run(sweep, base, tmp_path)


def test_a_metric_that_no_trial_reports_ends_the_sweep_at_its_first_end(base, tmp_path):
    sweep = raysm.Sweep(
        only_accuracy,
        space={"x": raysm.uniform(0, 1)},
        metric="loss",
        mode="min",
        trials=500,
        concurrency=1,
    )
    told = []
    with pytest.raises(InvalidRequest, match="'loss'.* 'accuracy'"):
        run(sweep, base, tmp_path, told)
    assert (
        len([event for event in told if isinstance(event, Trial) and event.status == "running"])
        < 10
    )


def test_a_trial_whose_process_dies_goes_on_from_its_checkpoint(base, tmp_path):
    marks = tmp_path / "marks"
    space = {"x": raysm.choice([1]), "marks": raysm.choice([str(marks)])}
    sweep = raysm.Sweep(goes_on, space=space, metric="loss", mode="min", search="grid")
    outcome, _, _ = run(sweep, base, tmp_path / "kept")
    (trial,) = trials_of(outcome)
    assert (trial.status, trial.value, trial.reports) == ("done", 0.25, 4)
    assert marks.read_text().split() == ["0", "1", "2", "3"]


def test_a_sweep_that_was_interrupted_goes_on_with_the_trials_that_were_not_done(base, tmp_path):
    marks, kept = tmp_path / "marks", tmp_path / "kept"
    space = {"x": raysm.randint(1, 3), "marks": raysm.choice([str(marks)])}
    sweep = raysm.Sweep(
        marks_itself, space=space, metric="loss", mode="min", search="grid", concurrency=1
    )
    before = Study(sweep.workload(), None, kept)
    first, second = before.next(), before.next()
    before.finish(ended(first, value=1.0))
    folder = before.files / "1" / "before"
    folder.mkdir(parents=True)
    (folder / "step").write_text("7")
    reported = replace(second.trial, reports=8)
    before.save(replace(second, trial=reported, checkpoint="1/before", reports=7))
    outcome, _, _ = run(sweep, base, kept)
    assert marks.read_text().splitlines() == ["2 7", "3 -"]
    assert [
        (trial.number, trial.status, trial.value, trial.reports) for trial in trials_of(outcome)
    ] == [
        (0, "done", 1.0, 0),
        (1, "done", 2.0, 8),
        (2, "done", 3.0, 1),
    ]
    assert outcome.resumed == 1


def test_once_earlier_runs_have_taken_all_the_time_no_trial_goes_on(base, tmp_path):
    marks, kept = tmp_path / "marks", tmp_path / "kept"
    space = {"x": raysm.randint(1, 3), "marks": raysm.choice([str(marks)])}
    sweep = raysm.Sweep(
        marks_itself, space=space, metric="loss", mode="min", search="grid", time_budget_s=60
    )
    before = Study(sweep.workload(), None, kept)
    first, second = before.next(), before.next()
    before.finish(ended(first, value=2.0))
    before.save(replace(second, trial=replace(second.trial, value=1.0)))
    before.save_spent(60.0)
    outcome, _, _ = run(sweep, base, kept)
    assert not marks.exists()
    assert [(trial.status, trial.value) for trial in trials_of(outcome)] == [
        ("done", 2.0),
        ("stopped", 1.0),
    ]
    assert outcome.notes == ("the time of 60 s was over: 1 trials were not begun",)


def reports_then_sleeps(x, marks):
    raysm.report(loss=x)  # returns when the head has it
    open(os.path.join(marks, str(x)), "w").close()
    time.sleep(600)


@pytest.mark.long
def test_the_time_budget_ends_running_trials_which_keep_what_they_reported(
    base, tmp_path, monkeypatch
):
    marks = tmp_path / "marks"
    marks.mkdir()
    # The time is over as soon as both trials have reported.
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + (4_000 if len(list(marks.iterdir())) == 2 else 0),
        time=time.time,
    )
    monkeypatch.setattr(runs, "time", clock)
    space = {"x": raysm.uniform(0, 1), "marks": raysm.choice([str(marks)])}
    sweep = raysm.Sweep(
        reports_then_sleeps, space=space, metric="loss", mode="min", trials=9, time_budget_s=3_600
    )
    outcome, _, _ = run(sweep, base, tmp_path / "kept")
    assert [trial.status for trial in trials_of(outcome)] == ["stopped"] * 2
    assert all(trial.value == trial.params["x"] for trial in trials_of(outcome))
    assert outcome.notes[-1] == "the time of 3600 s was over: 7 trials were not begun"


@pytest.mark.parametrize(
    ("offers", "size", "most", "expected"),
    [
        ([(4, 0), (4, 0)], (1, 1, 0), None, (8, "")),
        ([(4, 0)], (1, 1, 0), 2, (2, "")),
        ([(4, 2)], (1, 1, 0.5), None, (4, "")),
        ([(4, 0), (4, 0)], (3, 1, 0), None, (2, "")),
        (
            [(2, 0)],
            (1, 1, 0),
            5,
            (2, "2 trials run at once, not 5: the instances have no room for more"),
        ),
    ],
)
def test_as_many_trials_run_at_once_as_fit(offers, size, most, expected):
    nodes = [{"CPU": cpus, "GPU": gpus} for cpus, gpus in offers]
    assert (
        trials_at_once(nodes, TrialSize(workers=size[0], cpus=size[1], gpus=size[2]), most=most)
        == expected
    )


def work(x):
    return {"loss": (x - 2) ** 2, "x": x}


@pytest.mark.usefixtures("address")
def test_the_driver_leaves_the_table_the_best_and_a_manifest(base, tmp_path):
    pack(
        raysm.Sweep(
            work, space={"x": raysm.randint(1, 3)}, metric="loss", mode="min", search="grid"
        ),
        base,
    )
    paths = Paths(base)
    done, failure = drive(paths, tmp_path, HOME=os.environ["HOME"])
    assert failure is None, done.stderr
    assert done.returncode == 0
    assert Trials.read(paths.model).best == 1
    manifest = Manifest.read(paths.model)
    assert [file.name for file in manifest.files] == [TABLE, TRIALS]
    assert manifest.summary.startswith(
        "best of 3 trials (3 done; lowest loss): loss = 0 with x = 2"
    )
    assert list(manifest.phases_s) == ["trials"], "parts of the whole, which add up"
    assert manifest.measures == {"trials": 3.0, "resumed_trials": 0.0}
    assert "optuna" in manifest.versions
    assert '"kind": "trial"' in done.stdout
    plan = "sweep: 3 trials, search grid, keeps the lowest loss; parameters: x=randint(1, 3)"
    assert plan in done.stdout.split('"kind": "trial"')[0]


SPACE = {
    "lr": raysm.loguniform(1e-4, 1),
    "n": raysm.randint(1, 9),
    "kind": raysm.choice(["1", 2, None]),
}
CHOSEN = {"lr": "0.01", "n": "3", "kind": "2", "_tuning_objective_metric": "loss", "other": "x"}


def tuned(**fields):
    return raysm.Sweep(
        "train.py", space=SPACE, metric="loss", mode="min", trials=50, **fields
    ).workload()


def test_in_a_tuning_job_the_sweep_is_one_trial_with_the_services_values():
    trial = apply_hyperparameters(tuned(stop="median", time_budget_s=600), CHOSEN)
    assert {name: item.grid() for name, item in trial.space.items()} == {
        "lr": (0.01,),
        "n": (3,),
        "kind": (2,),
    }
    assert (trial.planned_trials, trial.stop, trial.time_budget_s) == (1, None, None)
    own = tuned()
    assert apply_hyperparameters(own, {"lr": "0.01"}) is own
    with pytest.raises(InvalidRequest, match="'n'"):
        apply_hyperparameters(own, {key: value for key, value in CHOSEN.items() if key != "n"})
