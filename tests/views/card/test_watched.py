"""What is known of a job that somebody watches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.events import Metric, Progress, State, line
from raysm.views.card.job_card import MAX_CHARACTERS, MAX_LINES, MAX_POINTS, Watched, clean


def watched(*events):
    state = Watched()
    for event in events:
        state.add("algo-1", event if isinstance(event, str) else line(event))
    return state.seen()


def test_nothing_is_known_before_the_first_line():
    seen = watched()
    assert (seen.joined, seen.stage, seen.phases, seen.curves, seen.usage, seen.lines) == (None, "", (), (), (), ())


def test_instances_that_join_are_counted():
    assert watched(State(name="joined", host="algo-2", count=2, total=4)).joined == (2, 4)
    seen = watched(State(name="formed", count=4, total=4), State(name="running"))
    assert (seen.joined, seen.stage) == ((4, 4), "running the workload")


def test_each_phase_is_so_far():
    seen = watched(
        Progress(phase="read", done=5, total=5, time_s=1.0),
        Progress(phase="similarity", done=0, total=10, time_s=2.0),
        Progress(phase="similarity", done=4, total=10, unit="rows", time_s=4.0),
    )
    assert [(name, share) for name, share, _ in seen.phases] == [("read", 1.0), ("similarity", 0.4)]
    assert seen.phases[1][2] == "similarity: 40% (4 of 10 rows, 2 rows/s, 3 s left)"


def test_a_phase_without_anything_to_do_is_done():
    assert watched(Progress(phase="gather", done=0, total=0)).phases[0][1] == 1.0


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
