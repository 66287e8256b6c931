"""Lines that come late, and out of the order of their times."""

import threading
import time
from random import Random

from raysm.local.server import log_files
from raysm.local.server.log_files import LateLines, LogWriter
from tests.support.sagemaker_server import wait_until


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
