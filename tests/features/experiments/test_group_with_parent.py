"""A command whose process group ends with the process that started it."""

import signal
import subprocess
import sys

import pytest

from raysm.features.experiments import group_with_parent
from tests.support.processes import is_running
from tests.support.waiting import until

PARENT = """
import subprocess, sys
from raysm.features.experiments import group_with_parent
command = group_with_parent.wrap(["sh", "-c", "sleep 1000 & echo $! $$; wait"])
process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
process.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_the_command_started_ends_however_the_parent_ends(number):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert all(map(is_running, pids))
        parent.send_signal(number)
        parent.wait()
    until(lambda: not any(map(is_running, pids)))


def test_the_exit_status_is_that_of_the_command():
    words = group_with_parent.wrap(["sh", "-c", "exit 7"])
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.wait() == 7
