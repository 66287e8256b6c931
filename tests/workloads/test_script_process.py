"""A script as a program beside others: it ends with whoever started it."""

import sys
import time

import psutil
import pytest

from raysm.workloads.script_process import lines_of, started

CHILD = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE).pid)"
FOREVER = "\nimport time\nprint('there')\ntime.sleep(600)"


def test_it_is_there_no_more_behind_its_block_and_neither_is_what_it_started(tmp_path):
    with started([sys.executable, "-c", CHILD + FOREVER], tmp_path) as process:
        child = psutil.Process(int(process.stdout.readline()))
        assert process.stdout.readline() == "there\n"
    assert process.returncode is not None
    deadline = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("session", [False, True])
def test_its_lines_end_with_it_though_what_it_started_holds_its_output_open(tmp_path, session):
    left = f"subprocess.Popen(['sleep', '600'], start_new_session={session})"
    code = f"import subprocess; print({left}.pid); print('end', end='')"
    with started([sys.executable, "-c", code], tmp_path) as process:
        pid, last = lines_of(process, drain_s=0.1)
        assert (last, process.wait()) == ("end", 0)
    psutil.Process(int(pid)).kill() if session else None


def test_its_lines_come_as_it_writes_them_wherever_they_are_cut(tmp_path):
    code = "import os; [os.write(1, piece) for piece in (b'a', b'b\\r', b'\\nc\\xc3', b'\\xa9\\n\\xff\\n')]; input()"
    with started([sys.executable, "-c", code], tmp_path) as process:
        lines = lines_of(process)
        assert [next(lines) for _ in range(3)] == ["ab\n", "c\u00e9\n", "\ufffd\n"]
