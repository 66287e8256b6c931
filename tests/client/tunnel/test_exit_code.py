"""The marks around a command's output that tell its exit code."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.client.tunnel.terminal import MarkedCommand


def output_of(marked):
    """Run the line as AWS's agent does in a container, without a shell that reads it."""
    return subprocess.run(shlex.split(marked.line()), capture_output=True, timeout=60).stdout


def shown(marked, output, size):
    return b"".join(marked.feed(output[start : start + size]) for start in range(0, len(output), size))


@pytest.mark.parametrize("code", [0, 3, 130])
@pytest.mark.parametrize("size", [1, 2, 1024])
def test_only_the_output_between_the_marks_is_shown(code, size):
    marked = MarkedCommand(["sh", "-c", f"echo 'it''s'; exit {code}"], has_terminal=True)
    output = b"Starting session\n" + output_of(marked) + b"Exiting session\n"
    assert shown(marked, output, size) == b"its\n"
    assert marked.code == code
    assert marked.preamble == b"Starting session\n"


def test_without_a_terminal_the_command_reads_nothing():
    marked = MarkedCommand(["cat"], has_terminal=False)
    assert shown(marked, output_of(marked), 10) == b""
    assert marked.code == 0


@given(st.lists(st.sampled_from([b"\x1e", b"a", b"\x1eab:", b"0:1\x1e"]), max_size=30), st.integers(1, 40))
def test_output_that_resembles_a_mark_is_shown(parts, size):
    marked = MarkedCommand(["true"], has_terminal=True)
    begin, end = marks(marked)
    output = b"".join(parts)
    assert shown(marked, begin + output + end, size) == output
    assert marked.code == 0


def marks(marked):
    """Return what a command without output writes: its two marks."""
    output = output_of(marked)
    middle = output.index(b"\x1e", 1) + 1
    return output[:middle], output[middle:]
