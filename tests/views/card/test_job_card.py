"""A job's card as HTML."""

import datetime
import random
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.client.job.description import Description, SecondaryStatus, Status
from raysm.contract.events import Metric, Progress, State, line
from raysm.contract.job_api import TRAINING
from raysm.request import Local
from raysm.views.card.job_card import (
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_LINES,
    MAX_POINTS,
    Moment,
    Seen,
    Watched,
    card,
    clean,
)
from tests.support.sagemaker import aws


def watched(*events):
    state = Watched()
    for event in events:
        state.add("algo-1", event if isinstance(event, str) else line(event))
    return state.seen()


def test_a_curve_goes_by_steps_or_by_seconds():
    losses = [Metric(name="loss", value=3.0 - step, step=10 * step) for step in range(3)]
    rates = [Metric(name="rate", value=5.0, time_s=100.0), Metric(name="rate", value=6.0, time_s=103.0)]
    assert watched(*losses, *rates).curves == (
        ("loss", ((0, 3.0), (10, 2.0), (20, 1.0))),
        ("rate", ((0, 5.0), (3, 6.0))),
    )


@pytest.mark.parametrize("count", [MAX_POINTS, MAX_POINTS + 1, 10_000, 10_001])
def test_a_long_curve_has_few_points_and_always_its_last(count):
    ((_, points),) = watched(*(Metric(name="loss", value=float(step), step=step) for step in range(count))).curves
    assert len(points) <= MAX_POINTS + 1
    assert (points[0], points[-1]) == ((0, 0.0), (count - 1, count - 1.0))
    assert sorted(points) == list(points)


def test_of_each_instance_the_latest_shares_are_known_by_its_number():
    seen = watched(
        Metric(name="cpu_percent", value=10, host="algo-10"),
        Metric(name="cpu_percent", value=20, host="algo-2"),
        Metric(name="cpu_percent", value=30, host="algo-2"),
        Metric(name="memory_bytes", value=1e9, host="algo-2"),
        Metric(name="gpu_percent", value=90, host="algo-2"),
    )
    assert seen.usage == (("algo-2", (("cpu", 30), ("gpu", 90))), ("algo-10", (("cpu", 10),)))
    assert seen.curves == ()


def test_the_last_lines_stay():
    seen = watched(*(f"line {number}" for number in range(100)))
    assert len(seen.lines) == MAX_LINES
    assert seen.lines[-1] == "algo-1 | line 99"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x07text", "text"),
        ("50%\r100%", "100%"),
        ("bell\x07\x00", "bell"),
        ("\x9b31mred", "31mred"),
        ("<script>", "<script>"),
        ("a\tb", "a\tb"),
        ("a" * 500, "a" * (MAX_CHARACTERS - 1) + "…"),
    ],
)
def test_a_line_has_nothing_that_a_terminal_obeys(text, plain):
    assert clean(text) == plain


@given(st.text(max_size=400))
def test_every_line_is_short_and_harmless(text):
    plain = clean(text)
    assert len(plain) <= MAX_CHARACTERS
    assert "\x1b" not in plain
    plain.encode()


NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
HOSTILE = '</svg></pre></div><script>alert("x")</script><img src=x onerror=alert(1)>\x1b[31m\ud800&'

ALLOWED = {
    *("div", "span", "b", "br", "pre", "details", "summary", "table", "tr", "td", "th"),
    *("svg", "path", "polyline", "text", "tspan", "circle"),
}


def moment(seen=None, **fields):
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
    own = {key: fields.pop(key) for key in list(fields) if key in Description.__dataclass_fields__}
    shown = {"target": Local(), "seen": seen or Seen(), "usd": None, "now_s": NOW.timestamp()} | fields
    return Moment(job=Description(**(job | own)), **shown)


def seen_of(*events):
    watched = Watched()
    for event in events:
        watched.add("algo-1", event if isinstance(event, str) else line(event))
    return watched.seen()


FULL = seen_of(
    State(name="formed", count=2, total=2),
    State(name="running"),
    Progress(phase="train", done=30, total=100, unit="steps"),
    *(Metric(name="loss", value=2 / (step + 1), step=step) for step in range(30)),
    *(Metric(name="lr", value=0.1, step=step) for step in range(30)),
    Metric(name="cpu_percent", value=97, host="algo-1"),
    Metric(name="memory_percent", value=30, host="algo-1"),
    "epoch 1 done",
)


class Page(HTMLParser):
    """Collects tags and texts, and that they are closed in their order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.open, self.attributes = set(), [], [], set()
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("br", "line", "circle") or self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)


def test_a_card_has_state_instances_progress_curve_usage_cost_and_lines():
    page = Page(card(moment(FULL)))
    for text in ("digits-1", "InProgress (Training)", "2 of 2 joined", "running the workload", "train: 30%", "97 %"):
        assert text in page.text
    for text in (
        "algo-1 | epoch 1 done",
        "0.0666667",
        "nothing: it runs on this machine",
        "as of 2026-11-22 12:00:00 UTC",
    ):
        assert text in page.text
    assert "path" in page.tags


def test_whatever_a_job_says_is_text():
    seen = seen_of(
        HOSTILE,
        State(name=HOSTILE, detail=HOSTILE),
        Progress(phase=HOSTILE, done=1, total=2, unit=HOSTILE),
        *(Metric(name=HOSTILE, value=step, step=step) for step in range(3)),
        Metric(name=f"{HOSTILE}_percent", value=5, host=HOSTILE),
    )
    html = card(
        moment(seen, name=HOSTILE, reason=HOSTILE, message=HOSTILE, trouble=HOSTILE, facts=((HOSTILE, HOSTILE),))
    )
    page = Page(html)
    assert page.tags <= ALLOWED
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "href", "id")}
    assert "alert" in page.text
    html.encode()


@pytest.mark.parametrize("character", ["a", "é", "損", "😀", "<", "&"])
def test_it_fits_into_its_bytes_however_much_a_job_says(character):
    chance = random.Random(0)
    text = character * 1000
    seen = seen_of(
        *(Progress(phase=f"{number}{text}", done=1, total=2) for number in range(20)),
        *(
            Metric(name=f"{number}{text}", value=chance.random() * 1e9, step=step)
            for number in range(10)
            for step in range(1000)
        ),
        *(
            Metric(name=f"{share}{text}_percent", value=5, host=f"{text}-{host}")
            for share in range(10)
            for host in range(8)
        ),
        *(text for _ in range(20)),
        State(name=text, detail=text),
    )
    html = card(moment(seen, trouble=text, facts=((text, text),) * 3, reason=text[:1024]))
    assert len(html.encode()) <= MAX_BYTES
    assert Page(html).tags <= ALLOWED


def test_of_many_instances_the_mean_is_shown():
    seen = seen_of(*(Metric(name="cpu_percent", value=number, host=f"algo-{number}") for number in range(1, 101)))
    text = Page(card(moment(seen))).text
    assert "100 instances, mean" in text
    assert "50 %" in text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"target": aws(), "usd": None}, "unknown"),
        ({"target": aws(), "usd": 1.25}, "about 1.25 USD so far"),
        (
            {"target": aws(), "usd": 1.25, "status": Status.COMPLETED, "secondary": SecondaryStatus.COMPLETED},
            "1.25 USD",
        ),
    ],
)
def test_its_cost_is_unknown_where_nobody_knows_it(fields, text):
    assert text in Page(card(moment(**fields))).texts


def test_that_the_service_is_away_is_said_and_the_rest_stays():
    text = Page(card(moment(FULL, trouble="describe: timed out"))).text
    assert "the service does not answer now: describe: timed out" in text
    assert "epoch 1 done" in text
