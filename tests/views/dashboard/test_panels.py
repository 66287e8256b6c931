"""Which charts a dashboard has."""

from raysm.contract.events import Metric
from raysm.views.dashboard.panels import MOST_CURVES, PANELS, board
from raysm.views.dashboard.timeline import Timeline


def timeline(*values):
    return Timeline(Metric(name=name, value=value, host=host, time_s=time_s) for name, host, time_s, value in values)


def test_the_workloads_own_metrics_come_first_under_their_names():
    charts = board(timeline(("cpu_percent", "algo-1", 1, 5.0), ("loss", "", 1, 3.0)), 0.0)
    assert [chart.title for chart in charts] == ["loss", "CPU"]
    assert charts[0].curves == {"loss": [(1, 3.0)]}
    assert charts[1].unit == "%"


def test_each_instance_has_a_curve_in_the_order_of_their_numbers():
    values = [("cpu_percent", f"algo-{number}", 1, 5.0) for number in (10, 2, 1)]
    assert list(board(timeline(*values), 0.0)[0].curves) == ["algo-1", "algo-2", "algo-10"]


def test_of_many_instances_the_extremes_and_the_mean_are_shown():
    count = 3 * MOST_CURVES
    values = [
        ("cpu_percent", f"algo-{number}", time_s, float(number)) for number in range(count) for time_s in (0, 500)
    ]
    (chart,) = board(timeline(*values), 0.0)
    assert {name: [value for _, value in points] for name, points in chart.curves.items()} == {
        "highest": [count - 1, count - 1],
        "mean": [(count - 1) / 2] * 2,
        "lowest": [0, 0],
    }


def test_a_loss_is_shown_from_its_begin_and_the_cpu_of_the_last_minutes():
    values = [(name, "", time_s, 1.0) for name in ("loss", "cpu_percent") for time_s in (0, 100, 200)]
    loss, cpu = board(timeline(*values), 150.0)
    assert len(loss.curves["loss"]) == 3
    assert len(cpu.curves["CPU"]) == 2


def test_what_each_instance_says_once_at_its_end_is_no_curve():
    once = [("sent_bytes", f"algo-{number}", number, 5.0) for number in (1, 2)]
    # Of a similarity twice: by its tasks, and by its instance.
    peaks = [("peak_memory_bytes", "algo-1", time_s, 5e9) for time_s in (1, 2)]
    own = [("queue", "algo-1", time_s, 1.0) for time_s in (1, 2)]
    assert [chart.title for chart in board(timeline(*once, *peaks, *own), 0.0)] == ["queue"]


def test_what_has_no_values_has_no_chart():
    assert board(Timeline(), 0.0) == []


def test_the_overview_shows_the_mean_of_all_instances():
    values = [("cpu_percent", "algo-1", 0, 10.0), ("cpu_percent", "algo-2", 0, 30.0), ("gpu_percent", "algo-1", 0, 7.0)]
    chart = PANELS["41"](timeline(*values), 0.0)
    assert {name: [value for _, value in points] for name, points in chart.curves.items()} == {
        "CPU": [20.0],
        "GPU": [7.0],
    }


def test_the_overview_shows_how_many_nodes_there_were():
    assert PANELS["24"](timeline(("nodes", "", 0, 2.0)), 0.0).curves == {"Node count": [(0, 2.0)]}


def test_shares_rates_and_counts_begin_at_zero_and_a_loss_where_it_is():
    loss, cpu = board(timeline(("cpu_percent", "algo-1", 1, 50.0), ("loss", "", 1, 3.0)), 0.0)
    assert (loss.from_zero, cpu.from_zero) == (False, True)
    assert PANELS["24"](timeline(("nodes", "", 0, 2.0)), 0.0).from_zero
