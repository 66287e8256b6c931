"""A script as a program beside others: it ends with whoever started it."""

import sys
import time

import psutil

from raysm.workloads.script_process import headline, kill, started

CHILD = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE).pid)"
FOREVER = "\nimport time\nprint('there')\ntime.sleep(600)"


def test_both_of_its_streams_are_one_of_lines_and_its_variables_are_its_own(tmp_path):
    code = "import os, sys; print(os.getcwd()); print(os.environ['OWN'], file=sys.stderr)"
    with started([sys.executable, "-c", code], tmp_path, {"OWN": "1"}) as process:
        assert list(process.stdout) == [f"{tmp_path}\n", "1\n"]
        assert process.wait() == 0


def test_it_is_there_no_more_behind_its_block_and_neither_is_what_it_started(tmp_path):
    with started([sys.executable, "-c", CHILD + FOREVER], tmp_path) as process:
        child = psutil.Process(int(process.stdout.readline()))
        assert process.stdout.readline() == "there\n"
    assert process.returncode is not None
    deadline = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_can_be_ended_before_and_twice(tmp_path):
    with started([sys.executable, "-c", FOREVER], tmp_path) as process:
        assert process.stdout.readline() == "there\n"
        kill(process)
        assert process.wait() == -9
        kill(process)


def test_why_it_failed_is_its_exit_and_its_last_line():
    assert headline(3, ["one", "two"]) == "the script ended with 3: two"
    assert headline(-9, []) == "the script was killed by signal 9"
