"""Stacks of this instance's processes, which write them on a signal: also stuck, forked and stopped ones."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.protocol import script_main
from raysm.core.protocol.stack_signal import find_file
from raysm.instance.stacks import read_stacks
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and memfd")


@contextlib.contextmanager
def running(tmp_path, code, **environment):
    """Run a script as a rank does; it must print a line when it stands."""
    script = tmp_path / "loop.py"
    script.write_text(code)
    process = subprocess.Popen(
        script_main.command(str(script), []),
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        process.stdout.readline()
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def stacks_of(process):
    return [each for each in read_stacks("algo-1", 0.2) if each.pid == process.pid]


def find_still(process):
    """Return the process's stack if two samples were the same, and it worked between them."""
    [stack] = stacks_of(process)
    return stack if stack.is_still and stack.busy > 0.05 else None


def test_rank_that_holds_the_gil_in_an_endless_call_shows_its_line(tmp_path):
    code = "import re\nprint(1, flush=True)\nre.match('(a+)+$', 'a' * 60 + 'b')  # endless\n"
    with running(tmp_path, code, RANK="3") as process:
        # On a full machine it may print and not have got to the next line yet.
        stack = until(lambda: find_still(process))
    assert stack.rank == 3
    assert stack.thread.own_frame.source.endswith("# endless")
    assert stack.busy > 0.05


def test_loop_over_several_lines_is_not_still(tmp_path):
    body = "".join(f"    x = sum(range(2000)) + {number}\n" for number in range(200))
    with running(tmp_path, f"print(1, flush=True)\nwhile True:\n{body}") as process:
        stacks = [stacks_of(process)[0] for _ in range(5)]
    # By chance, two samples may show the same line.
    assert not all(stack.is_still for stack in stacks)


BUSY_THREADS = """
import threading

def compute():  # threads
    while True:
        sum(number for number in range(50))

for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
print(1, flush=True)
compute()
"""


def test_threads_that_run_are_read_again_and_again_without_harm(tmp_path):
    with running(tmp_path, BUSY_THREADS) as process:
        for _ in range(40):
            read_stacks("algo-1", 0.01, answers=True)
        assert process.poll() is None
        until(lambda: count_computing(process) == 4)


def count_computing(process):
    stacks = {each.pid: each for each in read_stacks("algo-1", 0.01, answers=True)}
    threads = stacks[process.pid].threads
    return sum(any(frame.function == "compute" for frame in each.frames) for each in threads)


def test_stopped_process_is_named_as_stopped(tmp_path):
    with running(tmp_path, "import time\nprint(1, flush=True)\ntime.sleep(99)\n") as process:
        os.kill(process.pid, signal.SIGSTOP)
        [stack] = stacks_of(process)
        os.kill(process.pid, signal.SIGCONT)
    assert "SIGSTOP" in stack.problem


def test_forked_child_has_a_stack_of_its_own(tmp_path):
    code = (
        "import os, time\n"
        "if os.fork():\n    os.wait()\n"
        "else:\n    print(1, flush=True)\n    time.sleep(99)  # in the child\n"
    )
    with running(tmp_path, code) as process:
        stacks = {each.pid: each for each in read_stacks("algo-1", 0.2)}
    sources = [stack.thread.own_frame.source for stack in stacks.values() if stack.thread]
    assert "os.wait()" in sources
    assert "time.sleep(99)  # in the child" in sources
    assert process.pid in stacks


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo 1; sleep 99; true'])\n",
        "import os, time\nos.closerange(3, 200)\nprint(1, flush=True)\ntime.sleep(99)\n",
    ],
)
def test_process_that_replaced_itself_or_closed_the_file_is_not_signalled(tmp_path, code):
    with running(tmp_path, code) as process:
        assert find_file(process.pid) is None
        assert stacks_of(process) == []
        assert process.poll() is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="others have no such system call")
def test_process_that_waits_for_any_signal_is_not_woken(tmp_path):
    code = "import signal\nprint(1, flush=True)\nsignal.pause()\n"
    with running(tmp_path, code) as process:
        where = Path(f"/proc/{process.pid}/wchan")
        if not where.exists():
            pytest.skip("this system does not say where a process waits")
        until(lambda: "pause" in where.read_text())
        [stack] = stacks_of(process)
        assert process.poll() is None
    assert stack.problem == "waiting for a signal"


TYPED = """\
import sys, time
from raysm.core.protocol.stack_signal import show_cell
name = sys.argv[1]
cell = "import time\\n\\ntime.sleep(99)  # in the cell\\n"
show_cell("an earlier one", "x = 1")
show_cell(name, cell)
print(1, flush=True)
exec(compile(cell, name, "exec"))
"""


@pytest.mark.parametrize("name", ["<cell 12>", "Cell In[3]"])
def test_cell_of_a_session_shows_its_own_line(tmp_path, name):
    with running(tmp_path, TYPED.replace("sys.argv[1]", repr(name))) as process:
        stack = until(lambda: find_cell(process, name))
    assert stack.thread.own_frame.place == f"{name}:3"
    assert stack.thread.own_frame.source == "time.sleep(99)  # in the cell"


def find_cell(process, name):
    [stack] = stacks_of(process)
    return stack if stack.thread.own_frame.file == name else None


@pytest.mark.parametrize("name", ["<string>", "<eval_with_key>.1"])
def test_code_that_packages_made_is_not_the_users(tmp_path, name):
    code = TYPED.replace("sys.argv[1]", repr(name))
    with running(tmp_path, code) as process:
        stack = until(lambda: find_made(process, name))
    # The script's own line, which runs it.
    assert stack.thread.own_frame.source.startswith("exec(")


def find_made(process, name):
    [stack] = stacks_of(process)
    return stack if stack.thread.frames[0].file == name else None
