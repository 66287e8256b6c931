"""The mark behind a command's output that tells its exit code."""

import contextlib
import os
import pty
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.client.tunnel.exit_code import Marked


def output_of(marked):
    """Run the line as AWS's agent does in a container, which asks no shell to read it."""
    return subprocess.run(shlex.split(marked.line()), capture_output=True, timeout=60).stdout


def shown(marked, output, size):
    parts = [output[start : start + size] for start in range(0, len(output), size)]
    return b"".join(marked.feed(part) for part in parts) + marked.rest()


@pytest.mark.parametrize("code", [0, 3, 130])
@pytest.mark.parametrize("size", [1, 2, 1024])
def test_the_output_is_shown_and_the_code_told(code, size):
    marked = Marked(["sh", "-c", f"echo 'it''s'; exit {code}"], has_terminal=True)
    assert shown(marked, output_of(marked), size) == b"its\n"
    assert marked.code == code


def test_without_a_terminal_nothing_is_read():
    marked = Marked(["cat"], has_terminal=False)
    assert shown(marked, output_of(marked), 10) == b""
    assert marked.code == 0


@pytest.mark.parametrize("has_terminal", [False, True])
def test_ctrl_c_ends_the_command_and_its_code_is_told(has_terminal):
    marked = Marked(["sh", "-c", "echo ready; exec sleep 60"], has_terminal=has_terminal)
    process, terminal = pty.fork()
    if not process:  # as the agent begins it: in a session of its own, at a terminal that controls it
        os.execvp("sh", shlex.split(marked.line()))
    output = b""
    # EIO is how a terminal ends that nobody holds any more.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1024):
            if b"ready" in part:
                os.write(terminal, b"\x03")
            output += marked.feed(part)
    os.close(terminal)
    os.waitpid(process, 0)
    assert marked.code == 130
    assert output.startswith(b"ready")


def test_a_shell_also_reads_the_line_as_one_command():
    marked = Marked(["echo", "a b", "$HOME", "'"], has_terminal=True)
    output = subprocess.run(["sh", "-c", marked.line()], capture_output=True, timeout=60).stdout
    assert shown(marked, output, 100) == b"a b $HOME '\n"


@given(st.lists(st.sampled_from([b"\x1e", b"a", b"\x1eab:", b"0:1\x1e"]), max_size=30), st.integers(1, 40))
def test_what_is_no_mark_is_shown_as_it_is(parts, size):
    marked = Marked([], has_terminal=True)
    output = b"".join(parts)
    assert shown(marked, output, size) == output
    assert marked.code is None


def test_each_command_has_a_mark_of_its_own():
    first, second = Marked([], has_terminal=True), Marked([], has_terminal=True)
    assert first.line() != second.line()
