"""Whatever users can write, a job's name, a line of its log or a metric, is text wherever raysm draws HTML."""

import asyncio
import pkgutil
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from raysm.cli.arguments import parse
from raysm.cli.console import Console
from raysm.core.client.job.description import Description, SecondaryStatus, Status, render_html
from raysm.core.client.results.result import Result
from raysm.core.client.submit import submit
from raysm.core.client.views.charts import Chart, Plot, time_charts
from raysm.core.client.views.server import Page
from raysm.core.client.views.sparkline import sparkline
from raysm.core.protocol.events import Metric, Progress, State, Trial, line
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.result import Manifest, ResultFile
from raysm.core.request import Local
from raysm.features.dashboard.charts import Timeline, charts_site
from raysm.features.dashboard.dashboard import Watch, dashboard_site
from raysm.features.experiments.job_card import JobCard
from raysm.features.experiments.table import Jobs
from raysm.features.grid.row import RowState
from raysm.features.grid.views.report import report_page
from raysm.features.grid.views.text import shown_snapshot
from raysm.features.script.request import Script
from raysm.features.session.client import view as session_view
from raysm.features.session.notebook.jupyter import RemoteJupyter
from raysm.features.sweep.client import TrialTable
from raysm.features.sweep.plots import plot_sweep
from raysm.testing import Answer, FakeSageMaker
from tests.features.grid.views.test_report import grid_row
from tests.features.grid.views.test_text import view
from tests.support.experiments import row
from tests.support.sessions import state

EVIL = "</pre></svg></div><script>alert(1)</script>'\"><img src=x onerror=alert(1)>\x1b[31m&"
SEEN = "<script>alert(1)</script>"

JOB = Description(
    name=EVIL,
    arn=EVIL,
    api=TRAINING,
    status=Status.IN_PROGRESS,
    secondary=SecondaryStatus.TRAINING,
    message=EVIL,
    reason=EVIL,
    instances=((EVIL, 2),),
)
EVENTS = (
    EVIL,
    line(State(name=EVIL, detail=EVIL)),
    line(Progress(phase=EVIL, done=1, total=2, unit=EVIL)),
    *(line(Metric(name=EVIL, value=value, step=value)) for value in range(3)),
    line(Metric(name=f"{EVIL}_percent", value=5, host=EVIL)),
)


def job_card():
    card = JobCard(Local())
    for event in EVENTS:
        card.add(EVIL, event)
    return card.html(JOB, None, 1_800_000_000.0, trouble=EVIL)


def jobs_table():
    job = row(name=EVIL, parameters={EVIL: EVIL}, message=EVIL, metrics={}, status=Status.FAILED)
    return Jobs([job], None)._repr_html_()


def result():
    file = ResultFile(name=EVIL, shape=(), bytes=1, sha256="0", how_to_read=EVIL)
    facts = {
        "workload": {},
        "inputs": {},
        "files": (file,),
        "versions": {},
        "instances": (),
        "phases_s": {},
    }
    return Result(Path(EVIL), Manifest(job=EVIL, **facts))._repr_html_()


def trials():
    trial = Trial(number=0, status=EVIL, params={EVIL: EVIL}, value=1.0, host=EVIL, reason=EVIL)
    return TrialTable([trial], metric=EVIL, mode="min")._repr_html_()


def chart():
    curves = {EVIL: [(0, 1.0, 2.0), (1, 2.0, 3.0)]}
    return Plot(time_charts([Chart(title=EVIL, curves=curves)] * 2, 0.0, width=100, height=80)).svg


def sweep_chart():
    trials = [
        Trial(number=number, status="done", params={EVIL: EVIL}, value=1.0) for number in (0, 1)
    ]
    return plot_sweep(
        SimpleNamespace(trials=TrialTable(trials, metric=EVIL, mode="min"), metric=EVIL)
    ).svg


def page(kind=Page):
    return kind(SimpleNamespace(url=EVIL, port=1, prefix=EVIL), EVIL)._repr_html_()


def metrics_tab():
    request = SimpleNamespace(
        method="GET", rel_url=SimpleNamespace(raw_query_string="theme=%22%3E%3Cscript%3E")
    )
    answer = charts_site(EVIL, Timeline(), Path("/nonexistent"))(
        request, "raysm/charts/d/rayDefaultDashboard/"
    )
    return asyncio.run(answer).text


def page_of_an_ended_job(path=""):
    async def ask():
        watch = Watch.__new__(Watch)
        watch.timeline, watch.is_over = Timeline(), True
        cache = Path("/nonexistent")
        async with dashboard_site(EVIL, watch, None, "", cache, stacks=lambda _: EVIL) as site:
            url = SimpleNamespace(raw_query_string="")
            return await site(SimpleNamespace(method="GET", rel_url=url, query={}), path)

    return asyncio.run(ask()).text


OWN_SCRIPT = ("metrics tab", "page of an ended job")
"""Pages that have a script of raysm's."""

PLACES = {
    "job": lambda: render_html(JOB, Local()),
    "job's card": job_card,
    "session's card": lambda: session_view.render_card(
        EVIL, state(job=EVIL, ends_why=EVIL, closing=EVIL), EVIL
    ),
    "table of jobs": jobs_table,
    "result": result,
    "trials": trials,
    "sparkline": lambda: sparkline([(0, 1.0), (1, 2.0)], EVIL, note=EVIL),
    "chart": chart,
    "chart of a sweep": sweep_chart,
    "dashboard in a notebook": page,
    "JupyterLab in a notebook": lambda: page(RemoteJupyter),
    "metrics tab": metrics_tab,
    "stacks": lambda: page_of_an_ended_job("raysm/stacks"),
    "page of an ended job": page_of_an_ended_job,
    "grid": lambda: shown_snapshot(view(name=EVIL, why=EVIL, reasons=((EVIL, 1),)))._repr_html_(),
    "grid's report": lambda: report_page(
        view(name=EVIL, why=EVIL), [grid_row(EVIL, RowState.FAILED, EVIL)]
    ),
}


class Read(HTMLParser):
    """The tags of a page, the names of their attributes, and the text that a reader sees."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], {}, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= dict(attributes)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("place", PLACES)
def test_whatever_users_write_is_text(place):
    drawn = PLACES[place]()
    read = Read(drawn)
    assert read.tags.count("script") == (2 if place == "metrics tab" else place in OWN_SCRIPT)
    assert "img" not in read.tags
    assert not [name for name in read.attributes if name.startswith("on")]
    assert SEEN in read.text


def test_a_jobs_card_has_no_character_that_a_terminal_obeys():
    assert "\x1b" not in job_card()


def test_markup_in_a_terminal_is_text(tmp_path, capsys):
    fake = FakeSageMaker(tmp_path)
    (tmp_path / "train.py").touch()
    told = [
        "[red]line[/red]",
        line(Metric(name="[red]loss[/red]", value=1.0)),
        line(State(name="[red]on[/red]")),
    ]
    fake.answer("script", Answer(lines=told))
    job = submit(Script(str(tmp_path / "train.py"), args=["--lr", "[red]1[/red]"]), on=fake).name
    for command in (["metrics", job], ["logs", job], ["jobs", "--params", "lr", "--metrics", "*"]):
        arguments = parse(command)
        pkgutil.resolve_name(arguments.run)(arguments, Console(force_terminal=True), service=fake)
    shown = capsys.readouterr().out
    assert all(f"[red]{text}[/red]" in shown for text in ("line", "loss", "on", "1"))
