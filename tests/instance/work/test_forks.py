"""Processes that the user's code forks: the process of raysm that they came from stays whole."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
TIME_S = 120


@pytest.fixture
def run(tmp_path):
    """Return what runs a program in a process of its own, and returns the lines that it prints."""

    def run(program):
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{program}",
        ]
        done = subprocess.run(command, cwd=tmp_path, timeout=TIME_S, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


TERMINATED = """
import multiprocessing, pathlib, signal, time
from raysm.instance.work.runner import leave_on_sigterm
leave_on_sigterm(lambda: print("removed", flush=True))
fork = multiprocessing.get_context("fork")
child = fork.Process(target=time.sleep, args=(60,))
child.start()
child.terminate()
child.join()
print(child.exitcode == -signal.SIGTERM)
with fork.Pool(2) as pool:
    print(pool.map(abs, [-1, 2]))
print(signal.getsignal(signal.SIGTERM).__module__)
"""


def test_a_forked_process_that_is_terminated_removes_nothing_of_its_parents(run):
    assert run(TERMINATED) == ["True", "[1, 2]", "raysm.instance.work.runner"]


AT_ONCE = """
import multiprocessing, os, signal, time
os.register_at_fork(after_in_child=lambda: time.sleep(0.5))
from raysm.instance.work.runner import leave_on_sigterm
leave_on_sigterm(lambda: print("removed", flush=True))
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
child.terminate()
child.join()
print(child.exitcode == -signal.SIGTERM)
"""


def test_a_forked_process_ends_that_is_terminated_before_it_has_begun(run):
    assert run(AT_ONCE) == ["True"]


RETURNED = """
import os, sys
from raysm.instance.work.forks import ending_forks
def fork(how):
    child = os.fork()
    if child == 0:
        how()
    return child
def fail():
    raise ValueError("in the child")
for how, status in ((lambda: None, 0), (lambda: sys.exit(3), 3), (fail, 1)):
    with ending_forks():
        child = fork(how)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status, flush=True)
"""


def test_a_forked_process_ends_where_the_call_ends_with_the_status_of_a_program(run):
    assert run(RETURNED) == ["True"] * 3


CELLS = """
import asyncio, pathlib, shutil, tempfile, threading
from raysm.features.session.protocol import CELL, CallRequest, Outcome
from raysm.instance.work.runner import leave_on_sigterm
from raysm.features.session.cluster.calls import Call
from raysm.features.session.cluster.cells import Cells
from raysm.features.session.cluster.output import route_output

SOURCES = [
    '''
import multiprocessing
def work(number):
    print("in a worker", number)
    return number * number
with multiprocessing.get_context("fork").Pool(2) as pool:
    squares = pool.map(work, range(20))
assert squares[-1] == 361
''',
    '''
import os, signal
child = os.fork()
if child == 0:
    print("goes on")
else:
    assert os.waitpid(child, 0)[1] == 0
''',
    '''
import subprocess
child = subprocess.Popen(["sleep", "60"])
child.terminate()
assert child.wait() == -signal.SIGTERM
''',
    "assert len(squares) == 20",
]
private = pathlib.Path(tempfile.mkdtemp(dir="."))
leave_on_sigterm(lambda: shutil.rmtree(private))
cells = Cells("algo-1")

def feed():
    for source in SOURCES:
        call = Call("id", CallRequest(kind=CELL, name="a cell"), source.encode(), lambda: None)
        content, has_failed = asyncio.run(cells.run(call))
        print(has_failed, flush=True)
    cells.end()

feeding = threading.Thread(target=feed)
feeding.start()
with route_output(lambda: cells.output):
    cells.live()
feeding.join()
print(private.exists())
"""


def test_cells_that_fork_terminate_and_start_processes_leave_the_session_whole(run):
    lines = run(CELLS)
    assert [line for line in lines if line in ("True", "False")] == ["False"] * 4 + ["True"]
