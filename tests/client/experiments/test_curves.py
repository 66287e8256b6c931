"""What the metrics of a job come to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.client.experiments.experiment import MAX_POINTS, curves_of, goal_of, summary_of, thinned
from raysm.contract.events import Metric


def metric(value, step=None, **fields):
    return Metric(**({"name": "loss", "value": value, "step": step, "time_s": 1.0} | fields))


def test_each_name_has_a_curve_and_instances_have_none():
    curves = curves_of(
        [metric(3.0, 0), metric(9.0, name="rate"), metric(2.0, 1), metric(5.0, host="algo-1", name="cpu")]
    )
    assert curves == {"loss": [(0, 1.0, 3.0), (1, 1.0, 2.0)], "rate": [(None, 1.0, 9.0)]}


def test_of_a_step_that_was_done_again_the_last_value_counts():
    assert curves_of([metric(3.0, 0), metric(2.0, 1), metric(1.5, 1)])["loss"] == [(0, 1.0, 3.0), (1, 1.0, 1.5)]


def test_without_steps_the_time_tells_values_apart():
    assert len(curves_of([metric(3.0, time_s=1.0), metric(3.0, time_s=2.0), metric(3.0, time_s=2.0)])["loss"]) == 2


def test_a_summary_has_the_last_the_lowest_and_the_highest_value():
    summary = summary_of([(0, 1.0, 3.0), (1, 2.0, 1.0), (2, 3.0, 2.0)])
    assert (summary.last, summary.lowest, summary.highest, summary.count, summary.step) == (2.0, 1.0, 3.0, 3, 2)
    assert (summary.best("min"), summary.best("max"), summary.best(None)) == (1.0, 3.0, None)


def test_a_value_that_is_nan_is_neither_the_lowest_nor_the_highest():
    nan = float("nan")
    summary = summary_of([(0, 1.0, nan), (1, 2.0, 3.0), (2, 3.0, nan), (3, 4.0, 1.0)])
    assert (summary.lowest, summary.highest, summary.count) == (1.0, 3.0, 4)
    assert summary_of([(0, 1.0, nan)]).lowest != summary_of([(0, 1.0, nan)]).lowest
    curve = [(step, 1.0, nan if step % 2 == 0 else float(step)) for step in range(10 * MAX_POINTS)]
    curve[301] = (301, 1.0, -5.0)
    assert min(value for _, _, value in thinned(curve) if value == value) == -5.0


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("loss", "min"),
        ("val/loss", "min"),
        ("val_loss", "min"),
        ("rmse", "min"),
        ("eval_mae", "min"),
        ("epoch_s", "min"),
        ("accuracy", "max"),
        ("val_acc", "max"),
        ("f1", "max"),
        ("test/auc", "max"),
        ("rows_per_s", "max"),
        ("lr", None),
        ("temperature", None),
        ("epoch", None),
        ("loss_score", None),
    ],
)
def test_whether_lower_is_better_is_said_by_the_name_or_not_at_all(name, goal):
    assert goal_of(name) == goal


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=2000))
def test_in_few_points_a_curve_keeps_its_ends_and_its_extremes(values):
    curve = [(step, float(step), value) for step, value in enumerate(values)]
    fewer = thinned(curve)
    assert len(fewer) <= MAX_POINTS
    assert fewer == sorted(fewer)
    assert {curve[0], curve[-1]} <= set(fewer)
    assert (min(values), max(values)) == (min(value for *_, value in fewer), max(value for *_, value in fewer))
