"""Durations as users write and read them."""

import re

import pytest

from raysm.cli.arguments import parse
from raysm.core.request.durations import brief_duration, duration, parse_duration
from raysm.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("30 min", 1800),
        ("1.5h", 5400),
        ("1d", 86400),
        ("1w", 604800),
        ("0.5s", 0.5),
    ],
)
def test_a_number_with_a_unit_is_a_duration(text, seconds):
    assert parse_duration(text) == seconds


def test_a_number_alone_needs_an_option_with_a_unit_of_its_own():
    assert (parse_duration("60", bare="s"), parse_duration("60", bare="m")) == (60, 3600)
    with pytest.raises(InvalidRequest, match="60s.*60m.*60h"):
        parse_duration("60")


@pytest.mark.parametrize(
    "text", ["soon", "", "-5m", "1_000s", "1M", "nan", "inf", "1h 30m", "\u0663m"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidRequest, match=re.escape(repr(text))):
        parse_duration(text, bare="s")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "a.py", "--max-runtime"],
        ["result", "job", "--timeout"],
        ["session", "start", "--idle"],
        ["session", "keep", "s"],
        ["local", "clean", "--older-than"],
    ],
)
def test_every_option_takes_every_unit(words):
    for text in ("90s", "30m", "2h", "1d", "1w"):
        parse([*words, text])


def test_keep_asks_for_the_unit_of_a_bare_number(capsys):
    with pytest.raises(SystemExit):
        parse(["session", "keep", "s", "60"])
    assert "60s, 60m or 60h" in capsys.readouterr().err


def test_a_duration_is_shown_to_the_second_or_by_its_size():
    assert [duration(seconds) for seconds in (59.6, 90, 7500)] == [
        "1 min 0 s",
        "1 min 30 s",
        "2 h 5 min",
    ]
    assert [brief_duration(seconds) for seconds in (-1, 90, 600, 9000)] == [
        "0 s",
        "90 s",
        "10 min",
        "2.5 h",
    ]
