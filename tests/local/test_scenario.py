"""Scenarios and logs as files: what they may say, and what is said of those that say something else."""

import errno
import os
from pathlib import Path

import pytest

from raysm.errors import InvalidRequest
from raysm.local import scenario
from raysm.local.logs import MAX_LINE, LogPump
from raysm.local.scenario import Container, Scenario


def test_a_file_switches_what_it_names_and_leaves_the_rest_as_on_aws():
    read = scenario.parse("seed = 7\n[container]\nuser = 1000\n")
    assert read == Scenario(seed=7, container=Container(user=1000))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[container]\nhost = 'x'", "s.toml.container: unknown key 'host'; known are root_mb"),
        ("[contaner]\n", "s.toml: unknown key 'contaner'; known are container, network"),
        ("[ssm]\npermitted = 1", "s.toml.ssm.permitted: expected true or false, got 1"),
        ("[container", "s.toml: Expected ']'"),
    ],
)
def test_what_a_file_says_wrongly_is_named_with_its_place(text, words):
    with pytest.raises(InvalidRequest) as refused:
        scenario.parse(text, "s.toml")
    assert words in str(refused.value)


def test_what_is_switched_is_told_by_table_and_name():
    assert list(Scenario(seed=1).switched()) == []
    assert list(Scenario(container=Container(user=7)).switched()) == [("container.user", 7)]


def test_the_example_switches_something_in_every_table():
    example = scenario.read(Path(__file__).parents[2] / "examples" / "hostile.toml")
    tables = {switch.split(".")[0] for switch, _ in example.switched()}
    assert {"network", "checkpoints", "api", "capacity"} <= tables


def test_a_share_is_no_percentage():
    with pytest.raises(InvalidRequest, match=r"api\.throttled .* 5\.0"):
        scenario.parse("[api]\nthrottled = 5.0\n")


BY_REGION = """
speed = 60
[capacity]
start_delay_s = 240
insufficient = 0.1
[regions.eu-west-1.capacity]
start_delay_s = 30
instances = {"ml.p4d.24xlarge" = 8}
[regions.us-west-2.api]
rates = {ListTrainingJobs = 0.5}
"""


def test_a_region_has_what_it_says_and_else_what_all_have():
    read = scenario.parse(BY_REGION)
    far = read.of("eu-west-1").capacity
    assert (far.start_delay_s, far.insufficient, far.instances) == (
        30.0,
        0.1,
        {"ml.p4d.24xlarge": 8},
    )
    assert read.of("us-west-2").capacity == read.capacity == read.of("us-east-1").capacity
    assert read.of("us-west-2").api.rates == {"ListTrainingJobs": 0.5}
    assert (read.speed, read.of("us-east-1")) == (60.0, read)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[regions.eu-west-1.ssm]\npermitted = false",
            "a region has the tables api, capacity, market, simulated",
        ),
        (
            "[regions.eu-west-1.capacity]\nstart = 1",
            "regions.eu-west-1.capacity: unknown key 'start'",
        ),
        ("[api]\nrates = {ListTrainingJobs = 0}", "api.rates.ListTrainingJobs is above 0"),
        ("[capacity]\ninterruptions_per_hour = -1", "interruptions_per_hour is 0 or more, got -1"),
        ("[capacity]\ninterrupted_at = ['step 1', '']", "interrupted_at has an empty text"),
        (
            "[market]\nquotas = {'ml.m5.large' = -1}",
            "market.quotas.ml.m5.large is 0 or more, got -1",
        ),
    ],
)
def test_what_a_region_or_a_number_cannot_be_is_refused(text, words):
    with pytest.raises(InvalidRequest) as refused:
        scenario.parse(text, "s.toml")
    assert words in str(refused.value)


FULL = Path("/dev/full")


@pytest.fixture
def lines():
    return []


@pytest.fixture
def pump(lines):
    pump = LogPump(lambda host, line: lines.append((host, line)))
    yield pump
    pump.close()


def test_lines_arrive_with_their_host_and_the_file_has_every_byte(pump, lines, tmp_path):
    writer = pump.open("algo-1", tmp_path / "log")
    os.write(writer, b"one\ntw")
    os.write(writer, b"o\r\nthree, without a newline")
    pump.close()
    assert lines == [("algo-1", "one"), ("algo-1", "two"), ("algo-1", "three, without a newline")]
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\r\nthree, without a newline"


def test_bytes_that_are_no_utf_8_are_replaced_in_the_line_and_kept_in_the_file(
    pump, lines, tmp_path
):
    os.write(pump.open("algo-1", tmp_path / "log"), b"\xff\n")
    pump.close()
    assert lines == [("algo-1", "�")]
    assert (tmp_path / "log").read_bytes() == b"\xff\n"


def test_a_line_that_never_ends_is_passed_on_in_parts(pump, lines, tmp_path):
    writer = pump.open("algo-1", tmp_path / "log")
    for _ in range(5):
        os.write(writer, b"x" * (MAX_LINE // 4))
    pump.close()
    assert [len(line) for _, line in lines] == [MAX_LINE, MAX_LINE // 4]


def test_a_callback_that_raises_is_remembered_and_the_file_goes_on(tmp_path):
    def refuse(host, line):
        raise RuntimeError(line)

    pump = LogPump(refuse)
    os.write(pump.open("algo-1", tmp_path / "log"), b"one\ntwo\n")
    pump.close()
    assert str(pump.error) == "one"
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_a_pipe_that_a_stranger_holds_open_does_not_hold_up_the_end(pump, lines, tmp_path):
    held = os.dup(pump.open("algo-1", tmp_path / "log"))
    os.write(held, b"last words")
    pump.close(timeout_s=0.1)
    os.close(held)
    assert lines == [("algo-1", "last words")]


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a file that is a full disk")
def test_a_full_disk_is_told_at_the_end_and_nobody_waits_for_who_reads(pump, lines):
    writer = pump.open("algo-1", FULL)
    for _ in range(3):
        # More than a pipe holds: unread, the write would never return.
        os.write(writer, b"x" * (1 << 17) + b"\n")
    pump.close()
    assert [len(line) for _, line in lines] == [1 << 17] * 3
    assert pump.error.errno == errno.ENOSPC
