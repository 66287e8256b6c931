"""Native frames by the real py-spy, and the reason where it gives none."""

import ctypes
import os
import sys
from pathlib import Path

import pytest

from raysm.core.protocol.stacks import ProcessStack
from raysm.instance.children import Children
from raysm.instance.native_frames import NOT_ALLOWED, NOT_INSTALLED, TOO_SLOW, add_native_frames
from tests.instance.test_stacks import running, stacks_of
from tests.support.own_process import run_apart
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and py-spy")
SLEEPS = "import time\nprint(1, flush=True)\ntime.sleep(99)  # in C\n"
PR_CAPBSET_DROP = 24
CAP_SYS_PTRACE = 19


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def add_to(processes, environ=os.environ, limit_s=60.0):
    async def main():
        children = Children()
        try:
            return await add_native_frames(processes, children, environ, limit_s)
        finally:
            children.close()

    return run_apart(main)


def find_asleep(process):
    [stack] = add_to(stacks_of(process))
    functions = [frame.function for frame in stack.thread.frames if frame.is_native]
    return stack if "sleep" in " ".join(functions) else None


def test_frames_of_c_stand_above_the_line_that_called_them(tmp_path):
    with running(tmp_path, SLEEPS, RANK="3") as process:
        # On a full machine it may print and not have got to the next line yet.
        stack = until(lambda: find_asleep(process))
    assert stack.native_problem == ""
    frames = stack.thread.frames
    assert stack.thread.own_frame.source == "time.sleep(99)  # in C"
    # What called Python, libc's start, is left out.
    assert not frames[-1].is_native
    assert stack.rank == 3


@pytest.mark.skipif(os.getuid() != 0, reason="only root has the capability")
def test_without_ptrace_the_python_stack_comes_with_the_reason(tmp_path):
    with running(tmp_path, SLEEPS) as process:
        processes = stacks_of(process)

        async def main():
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0)
            children = Children()
            try:
                return await add_native_frames(processes, children, os.environ)
            finally:
                children.close()

        [stack] = run_apart(main)
    assert stack.native_problem == NOT_ALLOWED
    assert stack.threads == processes[0].threads


def test_image_without_py_spy_is_named_as_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    process = ProcessStack(host="algo-1", pid=1, role="rank 0")
    [stack] = add_to([process], {"PATH": str(tmp_path)})
    assert stack.native_problem == NOT_INSTALLED


def test_process_goes_on_if_py_spy_has_stopped_it_and_does_not_end(tmp_path):
    slow = tmp_path / "bin" / "py-spy"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\nkill -STOP "$5"\nexec sleep 99\n')
    slow.chmod(0o755)
    with running(tmp_path, SLEEPS) as process:
        environ = {"PATH": f"{slow.parent}:{os.environ['PATH']}"}
        [stack] = add_to(stacks_of(process), environ, limit_s=3.0)
        until(lambda: state_of(process.pid) != "T")
    assert stack.native_problem == TOO_SLOW
    assert stack.threads
