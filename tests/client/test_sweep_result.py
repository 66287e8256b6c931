"""The result of a sweep: the best trial, the table, and how they look."""

import pytest

from raysm.client.results.result import read_as
from raysm.client.sweep import TrialTable
from raysm.contract.events import BEST, Trial, Trials
from raysm.contract.result import Manifest


def manifest(kind="function_sweep"):
    return Manifest(
        job="digits",
        workload={"kind": kind},
        inputs={},
        files=(),
        versions={},
        instances=("algo-1",),
        phases_s={},
        summary="best of 3",
    )


TRIALS = (
    Trial(number=0, status="done", value=2.0, params={"lr": 0.1}, metrics={"loss": 2.0, "lr": 7.0}, time_s=3),
    Trial(number=1, status="failed", params={"lr": 0.2}, reason="ValueError: <b>", time_s=1),
    Trial(number=2, status="stopped", value=1.5, params={"lr": 0.3}, metrics={"loss": 1.5}, reports=4, time_s=4),
    Trial(number=3, status="done", value=2.5, params={"lr": 0.4}, metrics={"loss": 2.5}, time_s=2),
)


@pytest.fixture
def result(tmp_path):
    Trials(metric="loss", mode="min", trials=TRIALS, best=2).write(tmp_path)
    (tmp_path / BEST).mkdir()
    return read_as(tmp_path, manifest())


def test_the_best_trial_has_its_parameters_metrics_and_checkpoint(result, tmp_path):
    best = result.best
    assert (best.number, best.params, best.metrics, best.value) == (2, {"lr": 0.3}, {"loss": 1.5}, 1.5)
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


def test_of_many_trials_the_best_are_shown_and_the_rest_counted():
    many = TrialTable([Trial(number=n, status="done", value=float(n), params={}) for n in range(30)], "loss", "max")
    lines = repr(many).splitlines()
    assert lines[1].startswith("29 ")
    assert lines[-1] == "… and 10 more"
    assert "10 more" in many._repr_html_()


def test_what_a_trial_says_is_text_in_a_notebook(result):
    assert (
        "<script>"
        not in TrialTable([Trial(number=0, status="<script>", params={"<i>": "<b>"})], "loss", "min")._repr_html_()
    )
    assert "<table " in result._repr_html_()
