"""The priority of a training's processes."""

import os
import subprocess
import sys

import pytest

from raysm.workloads.training.priority import restore_priority


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_what_ray_made_nice_gets_the_priority_of_any_program():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.setpriority(os.PRIO_PROCESS, process.pid, 15)
        restore_priority(process.pid)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 0
        process.communicate(b"\n")


def test_a_process_that_is_gone_is_no_error():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    restore_priority(process.pid)
    assert process.returncode == 0
