"""Curves of metrics, of one job or of several."""

import re
from xml.etree import ElementTree

import pytest

from raysm.client.submit import submit
from raysm.contract.events import Metric, line
from raysm.errors import InvalidRequest
from raysm.request import Script
from raysm.testing import Answer, FakeSageMaker
from raysm.views.plot import plot_curves, plot_jobs


@pytest.fixture
def train(tmp_path):
    """Return a function that runs a job that reports these metrics."""
    script = tmp_path / "train.py"
    script.write_text("")
    fake = FakeSageMaker(tmp_path / "home")

    def run(*metrics):
        fake.answer("script", Answer(lines=[line(metric) for metric in metrics]))
        return submit(Script(str(script)), on=fake)

    return run


def falling(name="loss", steps=5):
    return [Metric(name=name, value=1 / (step + 1), step=step) for step in range(steps)]


def texts(plot):
    return [text.text for text in ElementTree.fromstring(plot.svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_job_plots_its_metric_by_step(train):
    job = train(*falling(), *falling("accuracy"))
    shown = texts(job.plot("loss"))
    assert {job.name, "loss", "step", "4"} <= set(shown)
    assert "accuracy" not in shown


def test_without_a_name_it_plots_all_of_the_jobs_own(train):
    job = train(*falling(), *falling("val/loss"), Metric(name="peak_memory_bytes", value=1e9, host="algo-1"))
    shown = set(texts(job.plot()))
    assert {"loss", "val/loss"} <= shown
    assert "peak_memory_bytes" not in shown
    assert "loss" not in texts(job.plot("val/*"))


def test_several_jobs_are_told_apart_by_their_names(train):
    one, other = train(*falling()), train(*falling())
    assert {one.name, other.name, "loss"} <= set(texts(plot_jobs([one, other], "loss", size=(900, 260))))


def test_values_without_steps_go_by_time(train):
    job = train(*(Metric(name="rate", value=value, time_s=1000 + 60 * value) for value in range(10)))
    assert {"time", "0 min", "8 min"} <= set(texts(job.plot("rate")))


def test_a_metric_that_no_job_has_is_said_with_those_that_there_are(train):
    with pytest.raises(InvalidRequest, match=r"no metric is named los; there are accuracy, loss"):
        train(*falling(), *falling("accuracy")).plot("los")


def test_a_job_without_metrics_has_an_empty_chart(train):
    assert "no values" in texts(train().plot("loss"))


def test_a_notebook_shows_it_in_its_own_colors_and_a_file_is_dark_on_white(train, tmp_path):
    plot = train(*falling()).plot("loss", log=True)
    assert "background" not in plot._repr_html_()
    assert "background:#fff" in plot._repr_svg_()
    assert plot.save(tmp_path / "loss.svg").read_text() == plot._repr_svg_()
    assert re.fullmatch(r"<raysm plot, [\d,]+ characters of SVG.*>", repr(plot))


def test_steps_that_came_in_another_order_are_drawn_in_theirs():
    svg = plot_curves({"job": {"loss": [(2, 0.0, 1.0), (0, 1.0, 3.0), (1, 2.0, 2.0)]}}, ["loss"]).svg
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", svg)]
    assert xs == sorted(xs)
