"""Events, results, sessions and names, as both sides read them."""

import pytest
import tqdm
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.protocol.events import (
    MAX_LINE_BYTES,
    Metric,
    Progress,
    ProgressLines,
    State,
    Trial,
    best_of,
    line,
    parse,
)
from raysm.core.protocol.names import natural
from raysm.core.protocol.result import MAX_REASON, Failure
from raysm.errors import BlockFailed, InvalidConfig
from raysm.features.session.protocol import Outcome, RemoteError, frame, unframe
from tests.support.pages import DOCS

EVENTS = [
    State(name="dashboard", host="algo-1", address="http://10.0.0.1:8265"),
    Progress(phase="similarity", done=10, total=100, unit="rows"),
    Metric(name="loss", value=0.25, step=3, host="algo-1"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_survives_its_line(event):
    assert parse(line(event)) == event
    assert "\n" not in line(event)


def test_the_page_about_events_shows_the_line_of_one():
    page = (DOCS / "reference" / "events.md").read_text()
    assert line(Metric(name="loss", value=0.25, step=3, time_s=1790000000.0)) in page.splitlines()


@given(st.text() | st.builds(lambda tail: '{"raysm": 1, ' + tail, st.text()))
def test_any_other_line_is_passed_over(text):
    assert parse(text) is None


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(
    "count", [10**400, -(10**400), 1 << 63], ids=["large", "negative", "64 bits"]
)
@pytest.mark.parametrize(
    "event",
    [
        Progress(phase="p", done=7, total=7),
        Metric(name="m", value=1.0, step=7),
        State(name="joined", count=7, total=7),
    ],
)
def test_a_line_with_a_count_that_no_display_and_no_table_can_hold_is_passed_over(event, count):
    printed = line(event)
    assert parse(printed) == event
    assert parse(printed.replace(": 7", f": {count}")) is None


@pytest.fixture
def clock():
    return Clock()


def test_a_bar_shows_one_line_a_second_and_its_last_state(clock):
    lines, shown = ProgressLines(clock), b""
    for percent in range(101):
        shown += lines.feed(b"\r%d%%" % percent)
        clock.now_s += 0.25
    shown += lines.feed(b"\n")
    assert shown.split() == [b"%d%%" % percent for percent in range(0, 101, 4)]


def test_windows_line_ends_are_line_ends_also_when_they_come_in_two_pieces(clock):
    lines = ProgressLines(clock)
    assert lines.feed(b"one\r\ntwo\r") + lines.feed(b"\nthree\n") == b"one\ntwo\nthree\n"


def fed(clock, *pieces, seconds=0.01):
    """Return the lines that are passed on, if each piece comes ``seconds`` after the one before."""
    lines, shown = ProgressLines(clock), b""
    for piece in pieces:
        clock.now_s += seconds
        shown += lines.feed(piece)
    return (shown + lines.rest()).decode().split("\n")


class Screen(list):
    """A file that keeps each write, and is no terminal."""

    encoding = "utf-8"

    def write(self, text):
        self.append(text.encode())

    def flush(self):
        pass


def test_bars_below_each_other_show_one_line_a_second_each_and_no_empty_lines(clock):
    screen = Screen()
    outer = tqdm.tqdm(total=3, desc="outer", file=screen, mininterval=0, position=0, ascii=True)
    for step in range(3):
        for _ in tqdm.tqdm(
            range(100),
            desc="inner",
            file=screen,
            mininterval=0,
            position=1,
            leave=False,
            ascii=True,
        ):
            pass
        outer.update()
        tqdm.tqdm.write(f"epoch {step} done", file=screen)
    outer.close()
    shown = fed(clock, *screen)
    assert len(screen) > 900
    assert [line for line in shown if "epoch" in line] == [
        f"epoch {step} done" for step in range(3)
    ]
    assert "" not in shown[:-1]
    bars = [line for line in shown if "%|" in line]
    assert 6 <= len(bars) <= 2 * len(screen) * 0.01 + 4
    assert any("outer: 100%" in line for line in bars[-2:])


def test_a_bar_in_a_worker_of_ray_keeps_its_label_and_shows_one_line_a_second(clock):
    label = "\x1b[36m(f pid=18916)\x1b[0m "
    states = [f"task 1: {percent:3}%|##   | {percent}/100 [00:01<00:00]" for percent in range(101)]
    shown = fed(
        clock, *(f"{label}\r{state}\n".encode() for state in states), f"{label}hello\n".encode()
    )
    assert shown[0] == label + states[0]
    assert shown[-3:] == [f"{label}hello", label + states[100], ""]
    assert len(shown) == 5


@pytest.mark.parametrize(
    "text", ["\n\n", "\rstep 1\n\rstep 2\n", "a\n\nb\n", "\x1b[31mred\x1b[0m\n", "(f pid=7) \n"]
)
def test_lines_that_are_no_bars_are_passed_on_at_once(clock, text):
    assert ProgressLines(clock).feed(text.encode()) == text.replace("\r", "").encode()


EVENT = '{"raysm": 1, "kind": "metric", "name": "loss", "value": 0.5}'
REPORT = '{"raysm_report": 1, "metrics": {"loss": 0.5}}'


@pytest.mark.parametrize("own", [EVENT, REPORT])
def test_an_event_after_text_without_a_line_end_is_put_on_a_line_of_its_own(clock, own):
    assert fed(clock, b"epoch 1 ", f"{own}\nepoch 2\n".encode()) == ["epoch 1 ", own, "epoch 2", ""]


def test_reports_beside_a_bar_have_lines_of_their_own_and_the_bar_shows_one_line_a_second(clock):
    pieces = [f"\r {step}%|#   | {step}/100{REPORT}\n".encode() for step in range(100)]
    shown = fed(clock, *pieces, b"\r100%|####| 100/100\n")
    assert shown.count(REPORT) == 100
    assert [line for line in shown if line not in (REPORT, "")] == [
        " 0%|#   | 0/100",
        "100%|####| 100/100",
    ]


def test_the_label_of_a_worker_of_ray_stays_before_its_event(clock):
    line = f"\x1b[36m(f pid=18916)\x1b[0m {EVENT}"
    assert fed(clock, f"{line}\n".encode()) == [line, ""]


def test_the_last_line_is_ended_so_that_what_follows_in_the_log_is_another_line(clock):
    lines = ProgressLines(clock)
    assert lines.feed(b"one\nlast") + lines.rest() == b"one\nlast\n"


def test_what_gloo_says_of_each_group_is_passed_on_only_if_a_rank_is_missing(clock):
    text = "[Gloo] Rank {} is connected to {} peer ranks. Expected number of connected peer ranks is : 3"
    assert fed(clock, f"{text.format(0, 3)}\n{text.format(1, 2)}\n".encode()) == [
        text.format(1, 2),
        "",
    ]


@given(
    st.lists(
        st.sampled_from(["a", "\r", "\n", "\x1b", "[A", " 5%|", " ", "(f pid=7) ", EVENT]),
        max_size=30,
    ),
    st.integers(1, 9),
)
def test_the_lines_do_not_depend_on_the_pieces_in_which_the_output_comes(parts, size):
    data = "".join(parts).encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert fed(Clock(), data, seconds=0) == fed(Clock(), *pieces, seconds=0)


def test_a_line_without_end_is_cut(clock):
    lines = ProgressLines(clock)
    assert lines.feed(b"x" * (MAX_LINE_BYTES + 5)) == b"x" * MAX_LINE_BYTES + b"\n"
    assert lines.rest() == b"x" * 5 + b"\n"


def test_a_reason_begins_with_the_exception_and_ends_with_the_end_of_the_traceback():
    failure = Failure(
        error_type="ValueError",
        message="no such layer",
        remote_traceback="x" * 5000 + "line 7, in f",
    )
    assert failure.reason().startswith("ValueError: no such layer\n…x")
    assert failure.reason().endswith("line 7, in f")
    assert len(failure.reason()) == MAX_REASON


def test_a_traceback_that_does_not_fit_loses_the_frames_of_packages():
    own = '  File "/opt/ml/code/prep.py", line 4, in <module>\n    frame["revenue"]\n'
    packages = (
        '  File "/usr/lib/python3/site-packages/pandas/core/frame.py", line 1, in get\n    x\n    ^\n'
        * 40
    )
    trace = f"Traceback (most recent call last):\n{own}{packages}KeyError: 'revenue'"
    reason = Failure(error_type="KeyError", message="'revenue'", remote_traceback=trace).reason()
    assert (
        reason
        == f"KeyError: 'revenue'\nTraceback (most recent call last):\n{own}KeyError: 'revenue'"
    )


@pytest.mark.parametrize("length", [0, 1, 900, 934, 935, 936, 937, 938, 939, 5000])
def test_a_reason_is_never_longer_than_what_sagemaker_keeps(length):
    reason = Failure(
        error_type="ValueError", message="m" * length, remote_traceback="t" * 2000
    ).reason()
    assert len(reason) <= MAX_REASON
    assert reason.startswith("ValueError")


def test_a_message_that_is_a_long_traceback_has_its_last_line_first():
    message = (
        "ray::work() (pid=7)\n" + "  File 'work.py', line 7\n" * 200 + "ValueError: no such layer\n"
    )
    reason = Failure(error_type="RayTaskError(ValueError)", message=message).reason()
    assert reason.startswith("RayTaskError(ValueError): ValueError: no such layer\n…")
    assert reason.endswith("line 7\nValueError: no such layer")
    assert len(reason) == MAX_REASON


def test_a_failed_block_says_which_and_how_often_and_why_in_the_first_line():
    error = BlockFailed(
        "block (0, 20)",
        3,
        "  File 'work.py', line 7\n" * 200 + "ValueError: no such layer",
        "ValueError: no",
    )
    reason = Failure(
        error_type="BlockFailed", message=str(error), remote_traceback="t" * 2000
    ).reason()
    first = "BlockFailed: block (0, 20) failed 3 times, the last time: ValueError: no ValueError: no such layer"
    assert reason.startswith(f"{first}\n…t")
    assert len(reason) == MAX_REASON


def trial(number, value, status="done"):
    return Trial(number=number, status=status, value=value, params={"lr": 0.1})


def test_the_best_is_the_first_of_equal_ones_and_never_a_failed_one():
    trials = [
        trial(0, None, "failed"),
        trial(1, 2.0),
        trial(2, 1.0, "stopped"),
        trial(3, 1.0),
        trial(4, 0.0, "failed"),
    ]
    assert best_of(trials, "min").number == 2
    assert best_of(trials, "max").number == 1
    assert best_of([trial(0, None, "failed")], "min") is None


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), st.binary())
def test_a_frame_is_read_as_it_was_made_whatever_its_bytes(head, body):
    assert unframe(frame(head, body)) == (head, body)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]\nx", b"no json\n", b"\xff\n"])
def test_what_is_no_frame_is_refused(content):
    with pytest.raises(InvalidConfig, match="frame"):
        unframe(content)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(pickled=b"a\nb"),
        Outcome(shown={"text/plain": "1"}),
        Outcome(
            error=RemoteError(
                type="KeyError", message="'lr'", traceback="…", host="algo-1", item=3
            ),
            pickled=b"x",
        ),
    ],
)
def test_an_outcome_is_read_as_it_was_written(outcome):
    assert Outcome.decode(outcome.encode()) == outcome


def test_numbers_in_names_count_as_numbers_and_equal_ones_by_the_name():
    names = ["part-10", "part-2", "part-02", "part", "b/part-1", "part-2b"]
    assert sorted(names, key=natural) == [
        "b/part-1",
        "part",
        "part-02",
        "part-2",
        "part-2b",
        "part-10",
    ]
    # A digit of another script is a letter: int() would take it for a number.
    assert sorted(["x²", "x10"], key=natural) == ["x10", "x²"]
