"""What %raysm and %%raysm understand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.views.magics.words import COMMANDS, CellLine, read_cell, read_command, seconds, usage


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("", CellLine()),
        ("-s digits --push a,b", CellLine(session="digits", push=("a", "b"))),
        ("--pull model", CellLine(pull=("model",))),
        ("-o later --async", CellLine(out="later", is_async=True)),
        ("--whole", CellLine(is_whole=True)),
        ("--on algo-1,algo-2", CellLine(on=("algo-1", "algo-2"))),
    ],
)
def test_a_cell_is_run_as_its_line_says(line, asked):
    assert read_cell(line) == asked


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--noblock", "--async"),
        ("-a", "--async"),
        ("--out later", "-o later"),
        ("--targets algo-2", "--on algo-2"),
        ("-t all", "--on all"),
        ("-b", "--block"),
    ],
)
def test_the_words_of_ipyparallel_are_understood(theirs, ours):
    assert read_cell(theirs) == read_cell(ours)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--psuh a", "%%raysm has no option --psuh; did you mean --push"),
        ("status", "%%raysm takes options alone, got 'status'; %raysm status, with one %, is a command"),
        ("digits", "%%raysm takes options alone, got 'digits'; %%raysm [-s NAME]"),
        ("--push a-b", "%%raysm --push must be names of variables, a,b, got 'a-b'"),
        ("--async --pull a", "which --async does not await"),
        ("--async --block", "%%raysm --block waits for the cell, and --async does not"),
        ("--on all,algo-1", "%%raysm --on must be head, all, or names of instances"),
        ("--on ,", "%%raysm --on must be head, all, or names of instances"),
    ],
)
def test_a_wrong_line_of_a_cell_is_refused_with_what_may_be_meant(line, message):
    with pytest.raises(InvalidRequest) as raised:
        read_cell(line)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_command_has_its_word_and_options():
    asked = read_command("start digits --instances 2 --type ml.m5.large --idle 30m --detached 90s --budget 2.5")
    assert (asked.name, asked.word) == ("start", "digits")
    assert asked.options == {
        "instances": 2,
        "instance_type": "ml.m5.large",
        "idle_timeout_s": 1800.0,
        "idle_timeout_detached_s": 90.0,
        "budget_usd": 2.5,
    }


def test_nothing_is_the_status():
    assert read_command("") == read_command("status")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("conect digits", "%raysm has no command 'conect'; did you mean connect"),
        ("connect", "%raysm connect needs NAME: %raysm connect NAME [--profile NAME]"),
        ("close a b", "%raysm close does not take 'b': %raysm close [NAME]"),
        ("off now", "%raysm off does not take 'now': %raysm off"),
        ("start --instances two", "%raysm start --instances must be a number from 1 on, got 'two'"),
        ("start --idle soon", "%raysm start --idle must be a time, 30m, 90s or 2h; a bare number is minutes"),
        ("start --budget much", "%raysm start --budget must be a number of USD, got 'much'"),
    ],
)
def test_a_wrong_command_is_refused_with_what_may_be_meant(line, message):
    with pytest.raises(InvalidRequest) as raised:
        read_command(line)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("text", "value"), [("60", 3600.0), ("90s", 90.0), ("1.5h", 5400.0), ("20min", 1200.0)])
def test_a_time_is_in_minutes_unless_it_says_otherwise(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "0", "-5", "5d", "soon"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InvalidRequest, match="%raysm keep needs a time"):
        seconds(text)


@given(st.text(max_size=60))
def test_no_line_fails_otherwise(line):
    for read in (read_cell, read_command):
        try:
            read(line)
        except InvalidRequest:
            pass


def test_every_command_says_what_it_does_and_how_it_is_used():
    assert all(command.summary for command in COMMANDS.values())
    assert COMMANDS["keep"].usage("keep") == "%raysm keep TIME"
    assert usage().startswith("%%raysm [-s NAME] [--push NAMES]")


def test_an_instance_that_is_named_twice_is_one():
    assert read_cell("--on algo-2,algo-1,algo-2").on == ("algo-2", "algo-1")
