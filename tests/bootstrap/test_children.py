"""Child processes: statuses, orphans, and nobody left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raysm.bootstrap.children import Children, descendants
from tests.support.own_process import run_apart

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prctl")


def python(code):
    return [sys.executable, "-S", "-c", code]


def with_children(scenario):
    async def main():
        children = Children()
        try:
            return await scenario(children)
        finally:
            await children.end_all(0)
            children.close()

    return run_apart(main)


def test_a_hundred_children_that_end_at_once_lose_no_status():
    async def scenario(children):
        started = [children.start(["/bin/sh", "-c", f"exit {i}"], os.environ) for i in range(100)]
        return [await child.wait(90) for child in started]

    assert with_children(scenario) == list(range(100))


@linux_only
def test_every_descendant_is_ended_even_one_that_ignores_sigterm_in_a_session_of_its_own():
    code = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "60"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""

    async def scenario(children):
        child = children.start(python(code), os.environ, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        child.stdout.close()
        below = descendants(os.getpid())
        begun = time.monotonic()
        await children.end_all(0.3)
        return child.status, len(below), descendants(os.getpid()), time.monotonic() - begun

    status, below, left, took_s = with_children(scenario)
    assert (status, left) == (-9, [])
    assert below >= 2
    assert took_s >= 0.3


@linux_only
def test_a_child_dies_with_its_parent_even_if_that_is_killed(tmp_path):
    code = """
import asyncio, os
from raysm.bootstrap.children import Children
async def main():
    print(Children().start(["/bin/sleep", "60"], os.environ).pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or ") Z " in stat.read_text():
            return
        time.sleep(0.02)
    pytest.fail("the child outlives its parent")
