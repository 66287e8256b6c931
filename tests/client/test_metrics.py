"""The list of a job's metrics."""

from raysm.client.logs.metrics import Metrics
from raysm.contract.events import Metric

CURVE = Metrics(
    [
        Metric(name="loss", value=1.0, step=1, time_s=10.0),
        Metric(name="val/loss", value=1.5, step=1, time_s=10.0),
        Metric(name="cpu_percent", value=50.0, host="algo-2", time_s=15.0),
        Metric(name="loss", value=0.5, step=2, time_s=20.0),
    ]
)


def test_metrics_are_chosen_by_names_and_patterns():
    assert [one.value for one in CURVE.named("loss")] == [1.0, 0.5]
    assert CURVE.named("*loss", "cpu*") == CURVE.named() == CURVE
    assert CURVE.named("*/loss").names == ["val/loss"]


def test_of_a_step_that_was_done_again_the_last_value_counts():
    again = Metrics([*CURVE, Metric(name="loss", value=0.75, step=1, time_s=30.0)])
    assert again.named("loss").rows() == [(1, 30.0, {"loss": 0.75}), (2, 20.0, {"loss": 0.5})]


def test_the_repr_says_what_there_is_and_how_it_ended():
    assert repr(CURVE).splitlines() == [
        "<4 values of 3 metrics>",
        "  loss: 0.5 at step 2, 2 values",
        "  val/loss: 1.5 at step 1, 1 value",
        "  cpu_percent: 50, 1 value",
    ]
    assert repr(Metrics()) == "<no metrics>"
    assert repr(Metrics([Metric(name="loss", value=1.0)])).splitlines()[0] == "<1 value of 1 metric>"
    assert len(repr(Metrics(Metric(name=f"m{at}", value=0.0) for at in range(100))).splitlines()) < 20


def test_a_frame_has_a_row_for_each_value():
    frame = CURVE.to_frame()
    assert list(frame.columns) == ["name", "value", "host", "step", "time"]
    assert frame["value"].tolist() == [1.0, 1.5, 50.0, 0.5]
    assert frame["step"].isna().tolist() == [False, False, True, False]
    assert str(frame["time"][0]) == "1970-01-01 00:00:10+00:00"
    assert len(Metrics().to_frame()) == 0


def test_a_wide_frame_has_a_row_for_each_step():
    frame = CURVE.of_job().to_frame(wide=True)
    assert frame.index.tolist() == [1, 2]
    assert frame["loss"].tolist() == [1.0, 0.5]
    timed = CURVE.of_instances().to_frame(wide=True)
    assert timed["cpu_percent@algo-2"].tolist() == [50.0]
    assert timed.index.name == "time"
    assert len(Metrics().to_frame(wide=True)) == 0
