"""Plots and sparklines: the curves that they have, and the files that they are saved as."""

import math
import re
from xml.etree import ElementTree

import pytest

from raysm.core.client.submit import submit
from raysm.core.client.views.charts import Chart
from raysm.core.client.views.sparkline import sparkline
from raysm.core.protocol.events import Metric, Trial, Trials, line
from raysm.core.protocol.result import Manifest
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.features.sweep.client import SweepResult
from raysm.testing import Answer


@pytest.fixture
def train(fake, script):
    """Return a function that runs a job that reports these metrics."""

    def run(*metrics):
        fake.answer("script", Answer(lines=[line(metric) for metric in metrics]))
        return submit(Script(str(script)), on=fake)

    return run


def falling(name="loss", steps=5):
    return [Metric(name=name, value=1 / (step + 1), step=step) for step in range(steps)]


def parts(plot):
    spec = plot.chart.to_dict()
    return spec.get("concat", [spec])


def curves(plot):
    found = {}
    for part in parts(plot):
        for row in part["data"]["values"]:
            found.setdefault(row["name"], []).append((row["t"], row["v"]))
    return found


def test_each_metric_has_a_chart_and_all_have_one_time_axis_that_begins_with_the_job(train):
    job = train(
        *falling(), *falling("val/loss"), Metric(name="peak_memory_bytes", value=1e9, host="algo-1")
    )
    shown = curves(job.plot("loss"))["loss"]
    assert [value for _, value in shown] == [1 / (step + 1) for step in range(5)]
    assert shown[0][0] == 0 <= shown[-1][0] < 60
    both = job.plot()
    assert list(curves(both)) == ["loss", "val/loss"]
    assert both.chart.to_dict()["resolve"]["scale"]["x"] == "shared"
    assert both.chart.to_dict()["params"][0]["views"] == ["view0", "view1"]
    assert list(curves(job.plot("val/*"))) == ["val/loss"]


@pytest.mark.parametrize(("log", "values"), [(False, [None, -2.0, 1.0]), (True, [None, None, 1.0])])
def test_what_has_no_place_on_the_axis_is_a_gap(log, values):
    chart = Chart(
        title="loss", curves={"loss": [(0, 1.0, float("nan")), (1, 2.0, -2.0), (2, 3.0, 1.0)]}
    )
    assert [row["v"] for row in chart.rows(0.0, log=log)] == values


def test_long_curves_stay_within_what_altair_takes(train):
    plot = train(*(each for number in range(16) for each in falling(f"m{number}", 300))).plot()
    assert sum(map(len, curves(plot).values())) <= 4500


def test_a_metric_that_no_job_has_is_refused_and_no_metric_at_all_is_an_empty_chart(train):
    with pytest.raises(InvalidRequest, match=" los;.* accuracy, loss"):
        train(*falling(), *falling("accuracy")).plot("los")
    assert train().plot("loss").svg.startswith("<svg")


def test_a_chart_can_be_read_on_dark_and_light_and_what_a_metric_is_called_is_text(train):
    svg = train(*falling("<script>alert(1)</script>"), *falling()).plot().svg
    assert "<script" not in svg
    assert 'fill="white"' not in svg
    assert "#808080" in svg


def test_a_notebook_shows_it_and_it_is_saved_by_its_suffix(train, tmp_path):
    plot = train(*falling()).plot("loss", log=True)
    shown = plot._repr_mimebundle_()
    assert [name.partition("/")[0] for name in shown] == ["application", "image", "text"]
    assert plot.save(tmp_path / "loss.svg").read_text().startswith("<svg")
    assert plot.save(tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    # Nothing of the page comes from the network.
    page = plot.save(tmp_path / "loss.html").read_text()
    assert 'src="http' not in page


MANIFEST = Manifest(
    job="job", workload={}, inputs={}, files=(), versions={}, instances=(), phases_s={}
)
TRIALS = (
    Trial(
        number=0, status="done", value=2.0, params={"lr": 0.1, "loss": 1, "act": "relu"}, time_s=1
    ),
    Trial(number=1, status="failed", params={"lr": 0.2, "loss": 1}, time_s=2),
    Trial(
        number=2,
        status="stopped",
        value=1.0,
        params={"lr": 0.3, "act": "a very long name of one"},
        time_s=3,
    ),
)


def sweep(folder, trials):
    Trials(metric="loss", mode="min", trials=trials, best=None).write(folder)
    return SweepResult(folder, MANIFEST)


def test_a_sweep_has_an_axis_for_each_parameter_and_the_best_value_so_far(tmp_path):
    plot = sweep(tmp_path, TRIALS).plot()
    rows = list(plot.chart.to_dict()["datasets"].values())
    lines = next(of_one for of_one in rows if "rank" in of_one[0])
    assert {row["axis"] for row in lines} == {"lr", "loss", "act", "loss (metric)"}
    assert {(row["trial"], row["rank"]) for row in lines} == {(2, "best"), (0, "other trials")}
    best = next(of_one for of_one in rows if "best" in of_one[0])
    assert [row["best"] for row in best] == [2.0, 1.0]
    assert plot.save(tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def texts(svg):
    return [
        "".join(text.itertext())
        for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_it_shows_the_title_the_last_value_and_the_range():
    svg = sparkline([(0, 1.0), (1, 3.0), (2, 2.0)], "<loss>", note="3 steps")
    assert texts(svg) == ["<loss>: 2", "3", "1", "3 steps"]
    assert "<style" not in svg
    assert "id=" not in svg


@pytest.mark.parametrize(
    "points",
    [
        [(0, 1.0)],
        [(0, 5.0), (1, 5.0)],
        [(0, -1e308), (1, 1e308)],
        [(0, float("nan")), (1, 2.0), (2, float("inf"))],
        [(float(x), float(x % 7)) for x in range(10_000)],
    ],
)
def test_every_point_lies_within_the_picture(points):
    svg = sparkline(points, "x")
    numbers = [
        float(number)
        for pair in re.findall(r"points=\"([^\"]*)\"", svg)
        for number in re.split(r"[ ,]", pair)
    ]
    assert all(0 <= x <= 320 for x in numbers[::2])
    assert all(0 <= y <= 108 for y in numbers[1::2])
    assert len(svg) < 10_000


def test_the_line_breaks_where_a_value_is_not_finite_and_the_last_value_is_marked():
    values = [1.0, 2.0, math.nan, 3.0, 4.0, math.inf]
    svg = sparkline(list(enumerate(values)), "loss")
    assert svg.count("<polyline") == 2
    assert texts(svg)[0] == "loss: ⚠ inf"


def test_without_a_value_there_is_nothing():
    assert sparkline([(0, float("nan"))], "x") == ""
