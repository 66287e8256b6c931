"""The files of a job's logs."""

import os
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from raysm.local.server import log_files
from raysm.local.server.log_files import LateLines, LogWriter, backwards, read
from tests.support.sagemaker_server import wait_until


def test_a_torn_line_is_passed_over(tmp_path):
    path = tmp_path / "stream"
    path.write_bytes(b'[1, "a"]\n[2, "to[3, "rn"]\n7\n[4, "b"]\n')
    assert [(at_ms, message) for _, _, at_ms, message in read(path)] == [(1, "a"), (4, "b")]
    assert [path.read_bytes()[begun:behind] for begun, behind, *_ in read(path)] == [b'[1, "a"]\n', b'[4, "b"]\n']


def test_backwards_yields_what_forwards_does_from_any_place(tmp_path):
    path = tmp_path / "stream"
    for lines in (0, 1, 7, 300):
        written = b"".join(b'[%d, "%s"]\n' % (at, b"x" * (at * 37 % 5000)) for at in range(lines))
        for torn in (b"", b'[9, "being wri'):
            path.write_bytes(written[: len(written) // 2] + b"7\n" * (lines > 1) + written[len(written) // 2 :] + torn)
            events = list(read(path))
            assert list(backwards(path)) == events[::-1]
            for _, behind, *_ in events[:: max(1, lines // 10)]:
                assert list(backwards(path, behind)) == [event for event in events if event[1] <= behind][::-1]


def test_a_message_as_long_as_may_be_is_read_backwards(tmp_path):
    writer = LogWriter(tmp_path, 1.0)
    for letter in "abc":
        writer.line("algo-1", letter * 300_000)
    writer.close()
    assert [text[0] for *_, text in backwards(tmp_path / "algo-1-1")] == ["c", "b", "a"]


def test_a_file_whose_name_is_not_utf_8_can_be_spoken_of(tmp_path):
    writer = LogWriter(tmp_path, 1.0)
    writer.line("algo-1", f"changed: {os.fsdecode(b'M' + bytes([252]) + b'ller.csv')}")
    writer.close()
    assert [text for *_, text in read(tmp_path / "algo-1-1")] == ["changed: M?ller.csv"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process reads")
def test_the_end_of_a_long_log_is_read_without_its_beginning(tmp_path):
    path = tmp_path / "stream"
    path.write_bytes(b"".join(b'[%d, "a line of the log"]\n' % at for at in range(100_000)))
    before = read_bytes()
    assert next(backwards(path))[2] == 99_999
    assert read_bytes() - before < path.stat().st_size / 4


def read_bytes():
    """Return how many bytes this process has read so far, as Linux counts them."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_who_is_told_of_an_event_finds_it_in_the_file(tmp_path):
    seen = []
    writer = LogWriter(tmp_path, 1.0, lambda: seen.append([event[3] for event in read(tmp_path / "algo-1-1")]))
    writer.line("algo-1", "one")
    writer.line("algo-1", "two")
    writer.close()
    assert seen == [["one"], ["one", "two"]]


def test_a_stream_of_a_job_that_is_gone_does_not_bring_it_back(tmp_path):
    writer = LogWriter(tmp_path / "gone" / "streams", 1.0)
    with pytest.raises(FileNotFoundError):
        writer.open("algo-1")
    assert not (tmp_path / "gone").exists()


class Writer:
    """Keeps what comes, and when."""

    def __init__(self):
        self.came = []
        self.closed = threading.Event()

    def line(self, host, message, at_s=None):
        self.came.append((host, message, at_s, time.time()))

    def close(self):
        self.closed.set()


def test_every_line_comes_after_the_end_too_in_its_instances_order_and_with_its_own_time():
    writer = Writer()
    late = LateLines(writer, 0.3, Random(1))
    for number in range(20):
        late.line(f"algo-{number % 2 + 1}", str(number))
    late.close()
    assert not writer.closed.is_set()
    assert writer.closed.wait(30)
    for host, numbers in (("algo-1", range(0, 20, 2)), ("algo-2", range(1, 20, 2))):
        assert [message for came, message, _, _ in writer.came if came == host] == [str(n) for n in numbers]
    assert [message for _, message, _, _ in writer.came] != [str(n) for n in range(20)]
    assert all(came_s > at_s for _, _, at_s, came_s in writer.came)


def test_without_a_line_it_ends_with_its_job():
    writer = Writer()
    LateLines(writer, 100.0, Random(0)).close()
    assert writer.closed.wait(30)


def test_what_comes_late_lies_in_the_file_under_the_time_at_which_it_was_written(tmp_path):
    writer = LogWriter(tmp_path, 7)
    late = LateLines(writer, 0.01, Random(0))
    before_ms = int(time.time() * 1000)
    late.line("algo-1", "hello")
    late.close()
    path = tmp_path / "algo-1-7"
    wait_until(lambda: path.exists() and path.stat().st_size > 0)
    ((_, _, at_ms, message),) = log_files.read(path)
    assert message == "hello"
    assert before_ms <= at_ms <= time.time() * 1000
