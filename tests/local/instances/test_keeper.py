"""The keeper by itself, driven by its lines of JSON: nothing of an instance outlives it, or whoever started it."""

import contextlib
import os
import signal
import sys

import psutil
import pytest

from raysm.local.instances import keeper
from tests.support.kept import WAIT_S, Kept

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


class Process(Kept):
    """A keeper of processes."""

    def start(self, *command, **more):
        environment = {"PATH": os.environ["PATH"], **more.pop("environment", {})}
        self.ask(op="start", command=command, environment=environment, cwd=str(self.folder), **more)
        return self.answer()

    def python(self, code, **more):
        return self.start(sys.executable, "-S", "-c", code, **more)


@pytest.fixture
def kept(tmp_path):
    with contextlib.closing(Process(keeper, tmp_path)) as one:
        yield one


def gone(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(WAIT_S)
    return not psutil.pid_exists(pid)


@LINUX
def test_what_the_main_process_left_is_gone_before_its_end_is_told(kept):
    # Twice forked, in a session of its own: nobody's child but the keeper's.
    kept.python(
        "import os, time\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        "        open('orphan', 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "while not os.path.exists('orphan') or not open('orphan').read(): time.sleep(0.01)\n"
    )
    assert kept.answer() == {"event": "exited", "code": 0}
    assert not psutil.pid_exists(int((kept.folder / "orphan").read_text()))


@LINUX
def test_the_main_process_dies_with_a_keeper_that_is_killed(kept):
    pid = kept.python("import time; time.sleep(600)")["pid"]
    kept.process.kill()
    assert gone(pid)


def test_a_signal_to_the_keeper_is_its_parents_business(kept):
    kept.python("import time; time.sleep(600)")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        kept.process.send_signal(number)
    # It still answers.
    kept.ask(op="ip", commands=[["/no/such/ip", "link"]])
    assert kept.answer()["event"] == "error"


def test_at_its_end_it_runs_what_cleans_up_and_more_only_without_parent(kept):
    def touch(name):
        return [["touch", str(kept.folder / name)]]

    kept.ask(op="at_end", commands=touch("cleaned"), orphaned=touch("orphaned"))
    assert kept.answer() == {"event": "done"}
    kept.python("import time; time.sleep(600)")
    kept.close()
    assert (kept.folder / "cleaned").exists()
    assert not (kept.folder / "orphaned").exists()
