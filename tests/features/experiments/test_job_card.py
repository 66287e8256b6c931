"""The card of a job as HTML, drawn again as the job goes on; test_escaping gives them hostile texts."""

import datetime
import math
import random
import re

import pytest

from raysm.core.client.job.description import Description, SecondaryStatus, Status
from raysm.core.client.submit import submit
from raysm.core.client.views.live_card import NOTEBOOKS, MarimoOutput, output_here
from raysm.core.protocol.events import Metric, Progress, State, line
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Local, MetricDefinition
from raysm.errors import InvalidRequest, NotDone
from raysm.features.experiments import job_card
from raysm.features.experiments.job_card import (
    MAX_BYTES,
    MIN_PAUSE_S,
    JobCard,
    show_meanwhile,
    watch,
)
from raysm.features.script.request import Script
from tests.support.client_jobs import M5, NOW_MS
from tests.support.sagemaker import aws, refusal
from tests.support.screens import WITHIN_S, Screen

NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)

FULL = (
    State(name="formed", count=2, total=2),
    State(name="running"),
    Progress(phase="train", done=3, total=10, unit="epochs"),
    *(Metric(name="loss", value=2 / (step + 1), step=step) for step in range(30)),
    *(Metric(name="lr", value=0.1, step=step) for step in range(30)),
    Metric(name="cpu_percent", value=97, host="algo-1"),
    Metric(name="memory_percent", value=30, host="algo-1"),
    "epoch 1 done",
)


def drawn(*events, target=None, usd=None, trouble="", **fields):
    """Return the card of a job that wrote these events and lines."""
    card = JobCard(target or Local())
    for event in events:
        card.add("algo-1", event if isinstance(event, str) else line(event))
    job = {
        "name": "digits-1",
        "arn": "",
        "api": TRAINING,
        "status": Status.IN_PROGRESS,
        "secondary": SecondaryStatus.TRAINING,
        "instances": (("ml.m5.large", 2),),
        "created": NOW - datetime.timedelta(minutes=5),
        "started": NOW - datetime.timedelta(minutes=4),
    }
    return card.html(Description(**job | fields), usd, NOW.timestamp(), trouble)


def text_of(html):
    return re.sub(r"<[^>]*>", " ", html)


def test_a_card_has_state_instances_progress_curve_usage_cost_and_lines():
    html = drawn(*FULL)
    for text in (
        "digits-1",
        "InProgress (Training)",
        "2 of 2 joined",
        "running the workload",
        "train: 30%",
        "97 %",
        "algo-1 | epoch 1 done",
        "0.0666667",
        "nothing: it runs on this machine",
        "as of 2026-11-22 12:00:00 UTC",
    ):
        assert text in text_of(html)
    assert html.count("<svg") == 2


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("50%\r100%", "100%"),
        ("bell\x07\x00 \ud800", "bell "),
        ("a" * 500, "a" * 179 + "…"),
    ],
)
def test_a_line_has_nothing_that_a_terminal_obeys(written, shown):
    html = drawn(written)
    assert f"algo-1 | {shown}</pre>" in html
    html.encode()


def test_a_card_says_from_which_step_a_metric_is_not_finite():
    values = [0.5, math.nan, 0.4, math.nan, math.inf]
    html = drawn(
        *(Metric(name="loss", value=value, step=step) for step, value in enumerate(values))
    )
    assert "⚠ inf from step 3" in text_of(html)
    of_rank = drawn(
        Metric(name="loss", value=math.nan, step=3, rank=2), Metric(name="loss", value=0.4, step=4)
    )
    assert "⚠ nan from step 3 on rank 2" in text_of(of_rank)
    assert "⚠" not in text_of(
        drawn(*(Metric(name="loss", value=value) for value in (math.nan, 0.5)))
    )


@pytest.mark.parametrize("character", ["é", "😀", "&"])
def test_it_fits_into_its_bytes_however_much_a_job_says(character):
    chance, text = random.Random(0), character * 1000
    html = drawn(
        *(Progress(phase=f"{number}{text}", done=1, total=2) for number in range(20)),
        *(
            Metric(name=f"{number}{text}", value=chance.random() * 1e9, step=step)
            for number in range(10)
            for step in range(300)
        ),
        *(
            Metric(name=f"{share}{text}_percent", value=5, host=f"{text}-{host}")
            for share in range(10)
            for host in range(8)
        ),
        *(text for _ in range(20)),
        State(name=text, detail=text),
        trouble=text,
        reason=text[:1024],
    )
    assert len(html.encode()) <= MAX_BYTES
    assert "as of" in html


def test_of_many_instances_the_mean_is_shown_and_of_few_each_by_its_number():
    percent = [
        Metric(name="cpu_percent", value=number, host=f"algo-{number}")
        for number in range(100, 0, -1)
    ]
    assert "100 instances, mean" in drawn(*percent)
    assert "50 %" in drawn(*percent)
    few = drawn(*(metric for metric in percent if metric.host in ("algo-2", "algo-10")))
    assert few.index("algo-2<") < few.index("algo-10<")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"target": aws()}, " unknown "),
        ({"target": aws(), "usd": 1.25}, " about 1.25 USD so far "),
        (
            {
                "target": aws(),
                "usd": 1.25,
                "status": Status.COMPLETED,
                "secondary": SecondaryStatus.COMPLETED,
            },
            " 1.25 USD ",
        ),
        (
            {"trouble": "describe: timed out"},
            "the service does not answer now: describe: timed out",
        ),
    ],
)
def test_what_it_costs_and_whether_the_service_answers(fields, text):
    assert text in text_of(drawn(*FULL, **fields))


def tell(remote, job, at, text):
    remote.write_log(job.name, "algo-1", [(NOW_MS + at, text)])


def test_it_is_drawn_at_once_again_as_the_job_goes_on_and_no_more_once_it_has_ended(remote, job):
    screen = Screen()
    watching = watch(job, screen)
    assert len(screen.cards) == 1
    assert job.name in screen.cards[0]
    assert repr(watching) == f"<card of {job.name}, live>"
    tell(remote, job, 1, "epoch 1")
    screen.wait_for("algo-1 | epoch 1")
    tell(remote, job, 2, line(Metric(name="loss", value=0.5, step=1)))
    screen.wait_for("0.5")
    remote.sagemaker.end(job.name, "Completed")
    assert watching.wait(WITHIN_S)
    assert "Completed" in screen.cards[-1]
    assert "ended" in repr(watching)
    drawn = len(screen.cards)
    tell(remote, job, 3, "late")
    assert len(screen.cards) == drawn
    pauses = [after - before for before, after in zip(screen.times, screen.times[1:], strict=False)]
    assert all(pause >= MIN_PAUSE_S * 0.9 for pause in pauses), (
        "there are at most two cards a second"
    )


def test_the_card_of_a_running_job_shows_what_its_metric_definitions_find(remote, script):
    definition = MetricDefinition("error", "err=(.*)")
    job = submit(Script(str(script)), cluster=M5, on=remote.service, metrics=[definition])
    screen = Screen()
    watching = watch(job, screen)
    tell(remote, job, 1, "err=0.0121")
    tell(remote, job, 2, "err=nan")
    screen.wait_for("⚠ nan from value 2")
    watching.stop()


def test_a_service_that_is_away_is_said_and_borne(remote, job):
    screen = Screen()
    away = remote.fail("describe_training_job", refusal("ThrottlingException", "slow down"))
    watching = watch(job, screen)
    screen.wait_for("the service does not answer now")
    away.end()
    watching.stop()
    assert not watching._thread.is_alive()


def test_outside_of_a_notebook_nothing_is_drawn_and_it_is_said_what_does_the_same(job):
    assert [kind.is_here() for kind in NOTEBOOKS] == [False, False]
    assert NOTEBOOKS[0] is MarimoOutput, "marimo's kernel may have a shell of IPython too"
    with pytest.raises(InvalidRequest, match=r"job\.logs\(follow=True\)"):
        output_here()
    with show_meanwhile(job):
        assert job.chain.first not in job_card._latest


class Cell(Screen):
    """A screen that belongs to a cell of a notebook."""

    def __init__(self, cell):
        super().__init__()
        self._cell = cell

    @property
    def cell(self):
        return self._cell


def test_a_cell_that_waits_shows_one_card_which_says_how_the_job_ended(remote, job):
    screen, again, later = Cell(1), Cell(1), Cell(2)
    with pytest.raises(NotDone), show_meanwhile(job, screen):
        job.wait(0)
    assert len(screen.cards) == 1
    with show_meanwhile(job, again):
        # A second wait of the same cell, and a job that is watched already, get no card of their
        # own.
        with show_meanwhile(job, later):
            tell(remote, job, 1, "epoch 1")
            screen.wait_for("epoch 1")
        remote.sagemaker.end(job.name, "Completed")
    assert "Completed" in screen.cards[-1]
    assert again.cards == later.cards == []
    with show_meanwhile(job, later):
        pass
    assert later.cards == [], "the job has ended: there is nothing to wait for"


def test_an_interrupted_cell_keeps_its_last_card(remote, job):
    first, second = Cell(1), Cell(2)
    with pytest.raises(KeyboardInterrupt), show_meanwhile(job, first):
        raise KeyboardInterrupt
    drawn = len(first.cards)
    assert job_card._latest[job.chain.first][1].wait(WITHIN_S)
    assert "InProgress" in first.cards[-1]
    with show_meanwhile(job, second):
        remote.sagemaker.end(job.name, "Completed")
    assert "Completed" in second.cards[-1]
    assert len(first.cards) <= drawn + 1
