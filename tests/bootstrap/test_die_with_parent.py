"""A command that dies with the process that started it."""

import subprocess
import sys
import time

import psutil
import pytest

from raysm.bootstrap import die_with_parent

PARENT = """
import subprocess, sys
from raysm.bootstrap.die_with_parent import wrap
child = subprocess.Popen(wrap([sys.executable, "-c", "input()"]), stdin=subprocess.PIPE, start_new_session=True)
print(child.pid, flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_wrapped_command_is_gone_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
    until = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_wrapped_command_is_what_it_was_with_its_arguments_and_exit_code():
    command = [sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(3)", "a b"]
    done = subprocess.run(die_with_parent.wrap(command), capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("a b\n", 3)


def test_a_command_whose_parent_has_ended_already_does_not_begin():
    command = [sys.executable, die_with_parent.__file__, "1", sys.executable, "-c", "print('begun')"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "begun" not in done.stdout or sys.platform != "linux"
