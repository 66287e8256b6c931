"""Text of others on a terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.protocol.terminal_text import visible

SEQUENCES = {
    "the clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "the title": "\x1b]0;title\x1b\\",
    "a cleared screen": "\x1b[2J\x1b[H",
    "a cleared line": "\x1b[2K",
    "hidden text": "\x1b[8mhidden",
    "hidden text among colours": "\x1b[1;08;31mhidden",
    "hidden text behind a broken colour": "\x1b[38;8mhidden",
    "a C1 control": "\x9b31mred",
    "a carriage return": "algo-1 | \rdone",
    "a backspace": "a\bb",
    "a byte that is not UTF-8": "caf\udce9",
    "another direction": "\u202egpj.exe",
    "an isolate": "\u2066a\u2069",
    "a reset terminal": "\x1bc",
    "a query of the terminal": "\x1b[6n",
}


@pytest.mark.parametrize("text", SEQUENCES.values(), ids=SEQUENCES)
def test_a_sequence_that_does_more_than_colour_is_shown_as_text(text):
    shown = visible(text)
    assert shown.isprintable()
    assert re.sub(r"\\(x|u20|udc)[0-9a-f]{2}|\\r", "", shown) == re.sub(r"[^\x20-\x7e]", "", text)


@pytest.mark.parametrize("colour", ["31", "1;4;97", "38;5;8", "48;2;8;8;8", "38:5:8", "0;32"])
def test_colours_stay_and_end_with_their_line(colour):
    start = f"\x1b[{colour}m"
    assert (
        visible(f"{start}one\ntwo {start}x\x1b[0m y") == f"{start}one\x1b[0m\ntwo {start}x\x1b[0m y"
    )


def test_text_without_controls_is_the_same_object():
    text = "algo-1 | loss = 0.5\tépoque 1 😀 שלום"
    assert visible(text) is text


@given(st.text(st.sampled_from("\x1b[];m0138425:\x07\x9b\u202eA\n\r")))
def test_whatever_is_printed_no_control_is_left_but_colours_and_what_was_shown_once_stays_the_same(
    text,
):
    shown = visible(text)
    assert visible(shown) == shown
    without_colours = re.sub(r"\x1b\[[0-9;:]*m", "", shown)
    assert without_colours.replace("\n", "").isprintable()
