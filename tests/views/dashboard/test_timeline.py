"""Values by time, in bounded memory."""

from raysm.contract.events import Metric
from raysm.views.dashboard.timeline import MOST, Timeline


def metric(time_s, value=0.0, host="", name="loss"):
    return Metric(name=name, value=value, host=host, time_s=time_s)


def test_each_instance_has_a_series_of_its_own():
    timeline = Timeline([metric(1, 10, "algo-1"), metric(1, 20, "algo-2"), metric(2, 11, "algo-1")])
    assert timeline.series("loss") == {"algo-1": [(1, 10), (2, 11)], "algo-2": [(1, 20)]}


def test_names_are_told_in_the_order_in_which_they_came():
    assert Timeline([metric(1, name="b"), metric(2, name="a"), metric(3, name="b")]).names == ["b", "a"]


def test_a_value_that_comes_late_takes_its_place():
    assert Timeline([metric(1), metric(3), metric(2)]).series("loss")[""] == [(1, 0), (2, 0), (3, 0)]


def test_of_a_range_the_value_before_it_is_told_too():
    timeline = Timeline([metric(second, second) for second in range(10)])
    assert timeline.series("loss", 7.5) == {"": [(7, 7), (8, 8), (9, 9)]}


def test_a_series_that_ended_before_the_range_is_left_out():
    assert Timeline([metric(1)]).series("loss", 2.0) == {}


def test_what_nobody_measured_has_no_series():
    assert Timeline().series("loss") == {}


def test_memory_is_bounded_and_the_latest_values_stay_close_together():
    timeline = Timeline(metric(second, second) for second in range(10 * MOST))
    points = timeline.series("loss")[""]
    assert len(points) <= MOST
    assert points[0][0] == 0
    assert [time_s for time_s, _ in points[-100:]] == list(range(10 * MOST - 100, 10 * MOST))
