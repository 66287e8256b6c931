"""``raysm.jobs``: the jobs that ran, as a table."""

import math
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import raysm
from raysm.client.submit import submit
from raysm.contract.events import Metric, Trial, line
from raysm.errors import InvalidRequest, MissingDependency
from raysm.request import Script
from raysm.testing import Answer, FakeSageMaker
from raysm.views.experiments.table import Jobs, jobs
from tests.support.client_jobs import NOW_MS
from tests.support.experiments import FULL, row
from tests.support.sagemaker import fake_aws


@pytest.fixture
def fake(tmp_path):
    return FakeSageMaker(tmp_path / "home")


@pytest.fixture
def train(fake, tmp_path):
    """Return a function that runs a job with a learning rate, which reports these losses."""
    script = tmp_path / "train.py"
    script.write_text("")

    def train(lr, *losses, status="Completed", reason="", **options):
        lines = [line(Metric(name="loss", value=loss, step=step)) for step, loss in enumerate(losses)]
        fake.answer("script", Answer(lines=lines, status=status, reason=reason))
        return submit(Script(str(script), args=["--lr", lr]), on=fake, **options).name

    return train


class Cells(HTMLParser):
    """Collects the text of a table's cells."""

    def __init__(self, html):
        super().__init__()
        self.cells, self.tags = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_it_has_what_ran_how_and_how_well_failed_jobs_too(fake, train):
    good, bad = train(0.1, 3.0, 0.5), train(0.9, 3.0, status="Failed", reason="ValueError: diverged")
    table = raysm.jobs(fake)
    assert [(one.name, str(one.status), one.value("lr"), one.value("loss")) for one in table] == [
        (bad, "Failed", 0.9, 3.0),
        (good, "Completed", 0.1, 0.5),
    ]
    assert table[0].message == "ValueError: diverged"


def test_they_are_chosen_and_sorted(fake, train):
    other = train(0.3, 1.0, project="words")
    names = [train(lr, loss, project="digits") for lr, loss in ((0.1, 2.0), (0.2, 0.5))]
    assert [one.name for one in jobs(fake, project="digits").sorted_by("loss")] == names[::-1]
    assert [one.name for one in jobs(fake).sorted_by("-lr")] == [other, names[1], names[0]]
    assert jobs(fake, status="failed") == []
    with pytest.raises(InvalidRequest, match="did you mean 'loss'"):
        jobs(fake).sorted_by("-los")
    with pytest.raises(InvalidRequest, match="status is one of InProgress"):
        jobs(fake, status=["Done"])


def test_a_frame_has_a_row_for_each_job_and_an_unknown_cost_is_not_0(fake, train):
    train(0.1, 3.0, 0.5, 0.7)
    frame = jobs(fake).to_frame()
    columns = ["params.lr", "metrics.loss", "metrics.loss:best", "status"]
    assert frame.loc[0, columns].tolist() == [0.1, 0.7, 0.5, "Completed"]
    assert math.isnan(Jobs([row(), FULL], fake).to_frame().loc[0, "cost_usd"])
    assert str(frame["created"].dtype).endswith("UTC]")
    assert list(Jobs([], fake).to_frame().columns) == ["name"]


def test_without_pandas_a_frame_says_what_is_missing(tmp_path):
    (tmp_path / "pandas.py").write_text("raise ImportError('no pandas', name='pandas')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from raysm.views.experiments.table import Jobs\n"
        "Jobs([], None).to_frame()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"{MissingDependency.__name__}: to_frame needs pandas: python3 -m pip install pandas" in ended.stderr


def test_two_jobs_are_compared_by_the_ends_of_their_names(fake, train):
    first, second = train(0.1, 0.5), train(0.2, 0.4)
    table = jobs(fake)
    comparison = table.compare(first, second[-6:])
    assert [(each.name, each.values) for each in comparison.differences][:2] == [
        ("lr", ("0.1", "0.2")),
        ("loss", ("0.5", "0.4")),
    ]
    with pytest.raises(InvalidRequest, match=r"compare takes two jobs or more"):
        table.compare(first)
    with pytest.raises(InvalidRequest, match=r"is several of these jobs: train-"):
        table.compare(first, "train-")
    with pytest.raises(InvalidRequest, match=r"none of these 2 jobs is named 'nobody'"):
        table.compare(first, "nobody")


def test_trials_are_rows_behind_their_sweep_compared_and_in_a_frame(fake, tmp_path):
    (tmp_path / "sweep.py").write_text("")
    trials = [
        Trial(number=number, status="done", params={"lr": 0.1 * number}, metrics={"loss": 1.0 / number}, reports=3)
        for number in (1, 2)
    ]
    fake.answer("script", Answer(lines=[line(trial) for trial in trials]))
    name = submit(Script(str(tmp_path / "sweep.py")), on=fake).name
    table = jobs(fake).with_trials()
    assert [one.name for one in table] == [name, f"{name}/1", f"{name}/2"]
    assert [one.name for one in table.sorted_by("loss")][:2] == [f"{name}/2", f"{name}/1"]
    assert "0.2" in repr(table.compare(f"{name}/1", f"{name}/2"))
    frame = table.to_frame()
    assert frame["trial"].tolist()[1:] == [1, 2]
    assert frame["params.lr"].tolist()[1:] == [0.1, 0.2]
    assert f"{name}/2" in table._repr_html_()


def test_the_curves_of_all_jobs_are_plotted_from_what_is_kept(fake, train):
    names = [train(lr, 3.0, 2.0, 1.0) for lr in (0.1, 0.2)]
    table = jobs(fake)
    fake.lines.clear()  # whoever reads the log again finds nothing
    (rows,) = jobs(fake).plot("loss", size=(900, 300)).chart.to_dict()["datasets"].values()
    assert sorted({row["name"] for row in rows}) == sorted(names)
    with pytest.raises(InvalidRequest, match="no metric is named auc; there are loss"):
        table.plot("auc")


def test_of_a_job_that_runs_the_curve_is_the_one_of_now(tmp_path):
    (tmp_path / "train.py").touch()
    with fake_aws() as remote:
        cluster = raysm.Cluster("ml.m5.large")
        name = submit(Script(str(tmp_path / "train.py")), cluster=cluster, on=remote.service).name
        losses = [(NOW_MS + at, line(Metric(name="loss", value=3 - at, step=at))) for at in range(3)]
        remote.write_log(name, "algo-1", losses[:2])
        table = jobs(remote.service)

        def count(table):
            return sum(map(len, table.plot("loss").chart.to_dict()["datasets"].values()))

        assert count(table) == 2
        remote.write_log(name, "algo-1", losses[2:])
        assert count(table) == 3


def test_a_notebook_shows_a_table_in_which_what_jobs_say_is_text(fake):
    hostile = '</table><script>alert("x")</script>'
    image = '"><img src=x onerror=alert(1)>'
    rows = [row(name=hostile, message=image, parameters={hostile: hostile}, metrics=FULL.metrics)]
    shown = Cells(Jobs([*rows, FULL], fake)._repr_html_())
    assert set(shown.tags) == {"table", "thead", "tbody", "tr", "th", "td", "span"}
    assert shown.cells[:3] == ["job", "status", hostile]
    assert {"0.5", "unknown", "0.25 USD", "1 min 40 s"} <= set(shown.cells)


def test_many_jobs_are_cut_and_it_is_said(fake):
    table = Jobs([row(name=f"job-{number}") for number in range(60)], fake)
    assert "and 10 more: to_frame() has all" in table._repr_html_()
    assert repr(table).endswith("and 10 more: to_frame() has all")


def test_a_terminal_shows_a_line_for_each(fake):
    assert repr(Jobs([FULL], fake)).splitlines() == [
        "<1 jobs>",
        "  digits-1  Completed  1 min 40 s  lr=0.1 fast=True model=resnet loss 0.5",
    ]
    assert repr(Jobs([], fake)) == "<no jobs>"
