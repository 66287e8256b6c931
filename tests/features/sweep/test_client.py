"""A sweep as the user writes it, what travels with it, what is refused, and its result."""

import functools
import json
import math
import pickle

import pytest

import raysm
from raysm.core.client.results.result import read_as
from raysm.core.client.source.package import package_of
from raysm.core.protocol.events import BEST, Trial, Trials, best_of
from raysm.errors import InvalidRequest
from raysm.features.sweep.client import Sweep, SweepResult
from raysm.features.sweep.request import Earlier, FunctionSweep, ScriptSweep
from tests.support.client_jobs import manifest

SPACE = {"lr": raysm.loguniform(1e-4, 1e-1), "batch": raysm.choice([32, 64])}


def train(lr, batch, epochs=3):
    return lr * batch * epochs


def train_by(config):
    return config["lr"]


def space(trial):
    return {"lr": trial.suggest_float("lr", 0, 1)}


def sweep(fn=train, **options):
    return Sweep(fn, **{"space": SPACE, "metric": "loss", "mode": "min"} | options)


def test_a_function_takes_the_parameters_by_name_or_all_as_one():
    assert sweep().workload().takes_config is False
    assert sweep(train_by).workload().takes_config is True
    assert sweep(lambda **params: 1).workload().takes_config is False
    assert sweep(train_by, space=space).workload().takes_config is True
    assert sweep(train_by, space=space).workload().draws is True
    assert sweep(functools.partial(train, epochs=9)).workload().takes_config is False


def test_function_and_space_travel_pickled_and_the_script_as_files(tmp_path):
    package = package_of(sweep(train_by, space=space))
    fn, (drawing,), named = pickle.loads(package.pickled)
    assert fn({"lr": 3}) == 3
    assert named == {}
    assert drawing.__name__ == "space"
    assert isinstance(package.workload, FunctionSweep)
    assert package.title == "train_by"
    script = tmp_path / "train.py"
    script.write_text("import raysm\n")
    package = package_of(sweep(raysm.Script(str(script), args=["--epochs", 3])))
    assert isinstance(package.workload, ScriptSweep)
    assert package.workload.args == ("--epochs", "3")
    assert package.pickled is None
    assert list(package.source.files) == ["train.py"]
    assert package.title == "train"
    assert package_of(sweep(script)).title == "train"


def test_the_direction_has_no_default():
    with pytest.raises(TypeError, match="mode"):
        Sweep(train, space=SPACE, metric="accuracy")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: sweep(space={"lrr": SPACE["lr"], "batch": SPACE["batch"]}),
            "'lr'; .*lr, batch, epochs, not lrr",
        ),
        (lambda: sweep("train.py", space=space), "script's space"),
        (lambda: sweep(warm_start="digits"), "warm_start.*'digits'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()


def earlier(folder, metric="loss", mode="min"):
    trials = (
        Trial(number=0, status="done", value=2.0, params={"lr": 0.1, "batch": 32}),
        Trial(number=1, status="failed", params={"lr": 0.2, "batch": 32}),
        Trial(number=2, status="stopped", value=3.0, params={"lr": 0.03, "batch": 64}),
    )
    Trials(metric=metric, mode="min", trials=trials, best=0).write(folder)
    return SweepResult(folder, manifest())


def test_a_warm_start_takes_the_trials_that_have_a_value(tmp_path):
    assert sweep(warm_start=earlier(tmp_path)).workload().warm_start == (
        Earlier(params={"lr": 0.1, "batch": 32}, value=2.0),
        Earlier(params={"lr": 0.03, "batch": 64}, value=3.0),
    )


def test_of_a_narrower_range_a_warm_start_takes_the_trials_that_lie_in_it(tmp_path):
    narrow = {"lr": raysm.loguniform(0.01, 0.05), "batch": raysm.choice([32, 64])}
    (taken,) = sweep(space=narrow, warm_start=earlier(tmp_path)).workload().warm_start
    assert taken.params == {"lr": 0.03, "batch": 64}
    elsewhere = {"lr": raysm.loguniform(1e-4, 1e-3), "batch": raysm.choice([32, 64])}
    with pytest.raises(InvalidRequest, match="none of the 2 trials of warm_start"):
        sweep(space=elsewhere, warm_start=earlier(tmp_path))


TRIALS = (
    Trial(
        number=0,
        status="done",
        value=2.0,
        params={"lr": 0.1},
        metrics={"loss": 2.0, "lr": 7.0},
        time_s=3,
    ),
    Trial(number=1, status="failed", params={"lr": 0.2}, reason="ValueError: <b>", time_s=1),
    Trial(
        number=2,
        status="stopped",
        value=1.5,
        params={"lr": 0.3},
        metrics={"loss": 1.5},
        reports=4,
        time_s=4,
    ),
    Trial(number=3, status="done", value=2.5, params={"lr": 0.4}, metrics={"loss": 2.5}, time_s=2),
)


@pytest.fixture
def result(tmp_path):
    Trials(metric="loss", mode="min", trials=TRIALS, best=2).write(tmp_path)
    (tmp_path / BEST).mkdir()
    return read_as(tmp_path, manifest(workload={"kind": "function_sweep"}, summary="best of 3"))


def test_the_best_trial_has_its_parameters_metrics_and_checkpoint(result, tmp_path):
    best = result.best
    assert (best.number, best.params, best.metrics, best.value) == (
        2,
        {"lr": 0.3},
        {"loss": 1.5},
        1.5,
    )
    assert best.checkpoint == tmp_path / BEST
    (tmp_path / BEST).rmdir()
    assert result.best.checkpoint is None


def test_the_table_is_rows_and_a_frame(result):
    rows = result.table().rows()
    assert rows[0]["lr"] == 0.1
    assert rows[0]["metrics.lr"] == 7.0
    assert rows[1]["reason"] == "ValueError: <b>"
    frame = result.table().to_frame()
    assert list(frame["value"].dropna()) == [2.0, 1.5, 2.5]
    assert frame.index.name == "number"


def test_the_best_come_first_where_people_look(result):
    lines = repr(result.table()).splitlines()
    assert lines[0].split() == ["trial", "status", "loss", "lr", "reports", "seconds"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "0", "3", "1"]
    assert result.view.endswith(repr(result.table()))
    assert "best of 3" in repr(result)


def test_a_trial_that_diverged_is_marked_in_the_table_and_never_the_best(tmp_path):
    metrics = {"loss": math.inf, "other": math.nan}
    reason = "loss is inf at step 3"
    diverged = Trial(number=4, status="stopped", params={"lr": 9.0}, metrics=metrics, reason=reason)
    path = Trials(metric="loss", mode="min", trials=(diverged, *TRIALS), best=2).write(tmp_path)
    # As earlier versions wrote it: they can read the file.
    assert json.loads(path.read_text())["trials"][0]["metrics"] == {}
    found = read_as(tmp_path, manifest(workload={"kind": "function_sweep"}, summary="best of 3"))
    lines = repr(found.table()).splitlines()
    assert lines[-1].split()[:6] == ["4", "stopped", "⚠", "inf", "from", "step"]
    assert found.trials.rows()[0]["loss"] == math.inf
    assert [trial.number for trial in found.trials.failed] == [1]
    assert best_of(found.trials, "min").number == 2
