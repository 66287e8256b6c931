"""The picture of a sweep."""

import xml.etree.ElementTree as ET

from raysm.client.sweep_result import SweepResult
from raysm.contract.events import Trial, Trials
from raysm.contract.result import Manifest
from raysm.views.sweep_plot import plot_sweep

MANIFEST = Manifest(job="job", workload={}, inputs={}, files=(), versions={}, instances=(), phases_s={})

TRIALS = (
    Trial(number=0, status="done", value=2.0, params={"lr": 0.1, "loss": 1}, time_s=1),
    Trial(number=1, status="failed", params={"lr": 0.2, "loss": 1}, time_s=2),
    Trial(number=2, status="stopped", value=1.0, params={"lr": 0.3}, time_s=3),
)


def result(folder, trials):
    Trials(metric="loss", mode="min", trials=trials, best=None).write(folder)
    return SweepResult(folder, MANIFEST)


def test_both_charts_are_one_picture_that_can_be_saved(tmp_path):
    plot = result(tmp_path, TRIALS).plot()
    root = ET.fromstring(plot.svg)
    assert [child.tag.endswith("svg") for child in root] == [True, True]
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"lr", "loss", "loss (metric)", "trials"} <= set(texts)
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "trial 2: loss = 1" in titles
    assert not any("trial 1" in title for title in titles)
    assert plot.save(tmp_path / "sweep.svg").read_text().startswith("<svg")


def test_a_sweep_without_values_is_a_picture_too(tmp_path):
    assert "no trials with a value" in plot_sweep(result(tmp_path, TRIALS[1:2])).svg
