"""Tests of ``raysm.cli.display``."""

import io
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from rich.console import Console

from raysm.cli.display import Display, Times
from raysm.core.client.job.description import Description, Status
from raysm.core.protocol.events import Progress, State, line
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import AWS, Local
from tests.support.shifted_clock import ShiftedClock, why_not


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def described(*transitions):
    return Description(
        name="a",
        arn="",
        api=TRAINING,
        status=Status.COMPLETED,
        transitions=tuple((status, at(begin), at(end)) for status, begin, end in transitions),
    )


def test_the_parts_add_up_to_the_whole_and_each_wait_is_apart():
    times = Times(
        started_s=1000,
        sent_s=1002,
        formed_s=1050,
        done_s=1090,
        ended_s=1097,
        described=described(
            ("Starting", 1002, 1003),
            ("Pending", 1003, 1033),
            ("Downloading", 1033, 1035),
            ("Uploading", 1091, 1095),
        ),
        installing_s=6.0,
    )
    whole_s, parts = times.parts({"load": 4.0, "similarity": 20.0, "gather": 6.0})
    assert whole_s == 97
    assert parts == {
        "preparing and sending": 2,
        "waiting for cores": 31,
        "downloading the inputs": 2,
        "installing packages": 6,
        "forming the cluster": 9,
        "starting the workload": 10,
        "load": 4,
        "similarity": 20,
        "gather": 6,
        "ending the cluster": 1,
        "storing the result": 4,
        "bringing the result": 2,
    }
    assert sum(parts.values()) == whole_s


def test_no_part_is_negative_though_the_service_s_clock_was_set_back():
    times = Times(started_s=1000, sent_s=1002, formed_s=1050, done_s=1090, ended_s=1097)
    times.described = described(
        ("Pending", 1003, -2600), ("Downloading", -2600, -2590), ("Uploading", -2500, -2490)
    )
    whole_s, parts = times.parts({})
    assert min(parts.values()) >= 0
    assert sum(parts.values()) <= whole_s


CLOCK = """
import sys
from raysm.cli.console import now_s
began_s = now_s()
print("began", flush=True)
sys.stdin.readline()
print(now_s() - began_s)
"""


@pytest.mark.skipif(why_not() is not None, reason=f"{why_not()}")
def test_a_command_takes_no_less_than_no_time_though_its_clock_is_set_back(tmp_path):
    clock = ShiftedClock(tmp_path)
    clock.jump(0)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", CLOCK], env=clock.variables, text=True, **pipes
    ) as command:
        assert command.stdout.readline() == "began\n"
        clock.jump(-3600)
        out, _ = command.communicate("\n", timeout=60)
    assert 0 <= float(out) < 60


def test_of_the_time_of_a_short_job_at_most_a_twentieth_is_left_out():
    times = Times(started_s=0, sent_s=0.9, formed_s=2.4, done_s=3.3, ended_s=3.6)
    times.described = described(
        ("Starting", 0.9, 0.93), ("Downloading", 0.93, 0.97), ("Uploading", 3.32, 3.35)
    )
    whole_s, parts = times.parts({"load": 0.2, "similarity": 0.4})
    assert sum(parts.values()) == pytest.approx(whole_s, rel=0.05)


def test_the_slowest_instance_s_installation_of_packages_counts():
    display = Display(Console(file=io.StringIO()))
    for seconds in ("3.5", "7.0", "0.4"):
        display.line(
            "algo-1",
            f"raysm: installed 3 packages, 12 MB, in {seconds} s (1.0 s of them to resolve versions)",
        )
    assert display.installing_s == 7.0


def shown(*lines, terminal=False):
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=terminal, width=100)) as display:
        for text in lines:
            display.line("algo-1", text)
    return out.getvalue()


def test_the_forming_of_the_cluster_is_told_as_a_person_would():
    text = shown(
        line(State(name="joined", host="algo-2", count=2, total=3)),
        line(State(name="formed", count=3, total=3)),
        line(State(name="dashboard", host="algo-1", address="http://10.0.0.1:8265")),
        line(State(name="lost", host="algo-3", detail="its connection closed")),
        line(State(name="teleported", host="algo-3")),
    )
    assert text.splitlines() == [
        "algo-2 joined: 2 of 3 instances",
        "cluster formed: 3 of 3 instances",
        "algo-3 was lost: its connection closed",
        "algo-3 teleported",
    ]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Local(), "^Ray's dashboard of this job: raysm dashboard a-job$"),
        (
            AWS(role="arn:aws:iam::1:role/r"),
            "^Ray's dashboard of this job: raysm dashboard a-job, through SSM",
        ),
    ],
)
def test_the_command_that_opens_the_dashboard_is_told_and_no_address_that_asks_for_a_token(
    target, words
):
    out = io.StringIO()
    with Display(Console(file=out, width=100)) as display:
        display.way_in = target.way_to_dashboard("a-job")
        display.line(
            "algo-1", line(State(name="dashboard", host="algo-1", address="http://10.0.0.1:8265"))
        )
    (way,) = out.getvalue().splitlines()
    assert re.search(words, way)


def test_in_a_pipe_a_phase_is_a_line_with_its_rate_when_it_is_done():
    text = shown(
        line(Progress(phase="similarity", done=0, total=1000, unit="rows", time_s=100.0)),
        line(Progress(phase="similarity", done=500, total=1000, unit="rows", time_s=101.0)),
        line(Progress(phase="similarity", done=1000, total=1000, unit="rows", time_s=102.0)),
    )
    assert text == "similarity: 100% (1,000 of 1,000 rows, 500 rows/s)\n"


def test_on_a_terminal_a_phase_is_a_bar():
    text = shown(
        line(Progress(phase="similarity", done=0, total=1000, unit="rows", time_s=100.0)),
        line(Progress(phase="similarity", done=1000, total=1000, unit="rows", time_s=102.0)),
        terminal=True,
    )
    assert "similarity" in text
    assert "1000/1000" in text
    assert "500 rows/s" in text
