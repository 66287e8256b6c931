"""Logs arrive whole, in order, line by line."""

import errno
import os
from pathlib import Path

import pytest

from raysm.local.logs import MAX_LINE, LogPump

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


def test_bytes_that_are_no_utf_8_are_replaced_in_the_line_and_kept_in_the_file(pump, lines, tmp_path):
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
