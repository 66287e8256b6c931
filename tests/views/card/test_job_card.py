"""Cards of jobs and sessions as HTML; tests/views/test_escaping.py gives them hostile texts."""

import datetime
import random
import re

import pytest

from raysm.client.job.description import Description, SecondaryStatus, Status
from raysm.contract.events import Metric, Progress, State, line
from raysm.contract.job_api import TRAINING
from raysm.request import Local
from raysm.views.card.job_card import MAX_BYTES, JobCard, session_card
from tests.support.sagemaker import aws
from tests.support.sessions import state

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
    percent = [Metric(name="cpu_percent", value=number, host=f"algo-{number}") for number in range(100, 0, -1)]
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
            {"target": aws(), "usd": 1.25, "status": Status.COMPLETED, "secondary": SecondaryStatus.COMPLETED},
            " 1.25 USD ",
        ),
        ({"trouble": "describe: timed out"}, "the service does not answer now: describe: timed out"),
    ],
)
def test_what_it_costs_and_whether_the_service_answers(fields, text):
    assert text in text_of(drawn(*FULL, **fields))


def test_a_session_has_state_instances_cost_end_and_a_link_to_its_dashboard():
    open_state = state(usd=0.5, usd_per_hour=2.0, budget_usd=20.0)
    card = session_card("digits", open_state)
    for text in (
        "<b>digits</b>",
        ">open<",
        "the job digits-1",
        "2: 8 CPUs",
        "0.50 USD of 20.00 USD, 2.00 USD an hour",
        "in 28 min: idle for 30 min with a client attached",
    ):
        assert text in card
    assert "<a " not in card
    assert 'href="/proxy/1/x/"' in session_card("digits", open_state, "/proxy/1/x/")
