"""The keeper by itself, driven by its lines of JSON: nothing of an instance outlives it, or whoever started it."""

import contextlib
import json
import os
import signal
import sys
import time

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


def appears(path):
    deadline = time.monotonic() + WAIT_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)
    return path.read_text()


def gone(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(WAIT_S)
    return not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)]
)
def test_the_main_process_is_started_and_its_end_is_told_as_a_shell_does(kept, code, expected):
    started = kept.python(code)
    assert (started["event"], started["pid"] > 0) == ("started", True)
    assert kept.answer() == {"event": "exited", "code": expected}
    assert kept.process.wait(WAIT_S) == 0


def test_it_runs_where_and_with_what_it_is_told_and_reads_nothing(kept):
    kept.python(
        "import os, sys; print(os.getcwd(), os.environ['A'], repr(sys.stdin.read()), oct(os.umask(0)))",
        environment={"A": "b"},
    )
    assert kept.answer()["code"] == 0
    assert kept.log() == f"{kept.folder} b '' 0o22\n"


def test_what_cannot_be_executed_is_an_error_with_its_step(kept):
    assert "exec /no/such/program: " in kept.start("/no/such/program")["message"]
    kept.ask(op="start", command=["true"], environment={}, cwd="/no/such/folder")
    assert "chdir /no/such/folder: " in kept.answer()["message"]


def test_a_signal_reaches_the_main_process_alone(kept):
    kept.python(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: open('told', 'w').write('x'))\n"
        "    time.sleep(600)\n"
        "open('ready', 'w').write('x')\n"
        "time.sleep(600)\n"
    )
    appears(kept.folder / "ready")
    kept.ask(op="signal", number=int(signal.SIGTERM))
    assert kept.answer() == {"event": "exited", "code": 7}
    assert not (kept.folder / "told").exists()


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


def test_everything_ends_with_the_line_to_whoever_started_it(kept):
    pid = kept.python("import time; time.sleep(600)")["pid"]
    kept.process.stdin.close()
    assert kept.process.wait(WAIT_S) == 0
    assert gone(pid)
    assert json.loads(kept.reports.read()) == {"event": "exited", "code": 137}


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


def test_a_command_of_the_network_that_fails_is_told_with_its_words(kept):
    kept.ask(op="ip", commands=[["/bin/sh", "-c", "echo no such device >&2; exit 2"]])
    answer = kept.answer()
    assert answer["event"] == "error"
    assert answer["message"].endswith("no such device")
    kept.ask(op="ip", commands=[["/bin/sh", "-c", "exit 0"]])
    assert kept.answer() == {"event": "done"}
