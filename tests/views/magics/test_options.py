"""Words and options of a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.views.magics.options import Option, identifier, nearest, read_options, split


def count(text):
    if not text.isdigit():
        raise ValueError("a number")
    return int(text)


OPTIONS = (
    Option(("-n", "--count"), "count", "how many", "NUMBER", count),
    Option(("-o", "--out"), "out", "where to", "NAME", identifier),
    Option(("--quiet",), "is_quiet", "say nothing"),
)


def read(line):
    return read_options(split(line, "%it"), OPTIONS, "%it")


@pytest.mark.parametrize(
    ("line", "words", "fields"),
    [
        ("", [], {}),
        ("a b", ["a", "b"], {}),
        ("-n 3 a --quiet", ["a"], {"count": 3, "is_quiet": True}),
        ("--count=3", [], {"count": 3}),
        ("'two words' -o x", ["two words"], {"out": "x"}),
        ("-5 -0.5", ["-5", "-0.5"], {}),
    ],
)
def test_words_and_options_are_told_apart(line, words, fields):
    assert read(line) == (words, fields)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--cuont 3", "%it has no option --cuont; did you mean --count or --out?"),
        ("--zzzzzzzzzzzz", "%it has no option --zzzzzzzzzzzz; there are -n, --count, -o, --out, --quiet"),
        ("-n", "%it -n needs NUMBER: how many"),
        ("-n many", "%it -n must be a number, got 'many'"),
        ("-o 3x", "%it -o must be the name of a variable, got '3x'"),
        ("--quiet=yes", "%it --quiet takes no value, got 'yes'"),
        ("'open", '%it: no closing quotation in "\'open"'),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(line, message):
    with pytest.raises(InvalidRequest) as raised:
        read(line)
    assert str(raised.value) == message


@given(st.text(max_size=60))
def test_no_line_fails_otherwise(line):
    try:
        read(line)
    except InvalidRequest:
        pass


def test_an_option_says_how_it_is_used():
    assert [option.usage() for option in OPTIONS] == ["[-n NUMBER]", "[-o NAME]", "[--quiet]"]


def test_the_nearest_words_are_named_else_all():
    assert nearest("statsu", ["status", "start"]) == "; did you mean status or start?"
    assert nearest("xyz", ["status", "start"]) == "; there are status, start"
