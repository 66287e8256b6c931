"""``ray start`` with what Ray has no switch for."""

import os
import subprocess
import sys
import time
from collections import namedtuple

import pytest

from raysm.bootstrap.ray_start import DASHBOARD_NICE, NICE, adapt_start

Info = namedtuple("Info", ["process"])
RAYLET = ["raylet", "--num_prestart_python_workers=96", "--port=1"]

NODE = """
import subprocess, sys, threading, time, types

wanted, begun, answers = threading.Event(), threading.Event(), threading.Event()

class Agents:
    postponed, rung, followed = False, threading.Event(), []

    def postpone(self):
        self.postponed = True

    def ring(self):
        self.rung.set()

    def follow_dashboard(self, node):
        self.followed.append(node)

agents = Agents()

class Node:
    node_ip_address = "127.0.0.1"

    def __init__(self):
        self.all_processes = {}
        self.start_monitor()
        self.start_api_server(include_dashboard=None, raise_on_failure=False)
        self.all_processes["raylet"] = []
        print("registered", flush=True)

    def start_monitor(self):
        self.all_processes["monitor"] = []
        print("monitor", flush=True)

    def start_api_server(self, *, include_dashboard, raise_on_failure):
        assert (include_dashboard, raise_on_failure) == (None, False)
        print("dashboard", flush=True)
        begun.set()
        answers.wait()
        self.all_processes["dashboard"] = []

    def get_gcs_client(self):
        return types.SimpleNamespace(internal_kv_put=lambda *_: None)

    def kill_all_processes(self, check_alive=True, allow_graceful=False):
        print("the others end", check_alive, allow_graceful, *self.all_processes.get("gcs_server", []), flush=True)

module = sys.modules["ray._private.node"] = types.ModuleType("ray._private.node")
module.Node = Node
from raysm.bootstrap import ray_internals
from raysm.bootstrap.ray_start import adapt_kill, postpone_dashboard

SPAWN = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']); print('up', flush=True); input()"
spectator = subprocess.Popen([sys.executable, "-c", SPAWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
spectator.stdout.readline()
class Port:
    host, port = "127.0.0.1", 1
    await_caller, pass_test = staticmethod(wanted.wait), staticmethod(lambda: None)

postpone_dashboard(Port, agents)
ray_internals.KILL_ALL.replace(lambda kill_all: adapt_kill(kill_all, [spectator]))
node = Node()
"""


def run(code):
    """Return what a process that runs ``code`` with such a node writes, and its exit code."""
    ended = subprocess.run([sys.executable, "-c", NODE + code], capture_output=True, text=True, timeout=180)
    assert not ended.stderr
    return ended.stdout.splitlines(), ended.returncode


def test_as_many_workers_are_started_ahead_as_are_asked_for():
    seen = []
    adapt_start(lambda command, process_type: seen.append(command), 1, [])(RAYLET, "raylet")
    adapt_start(lambda command, process_type: seen.append(command), None, [])(RAYLET, "raylet")
    assert seen == [["raylet", "--num_prestart_python_workers=1", "--port=1"], RAYLET]


@pytest.mark.parametrize(
    ("process_type", "more"), [("dashboard", DASHBOARD_NICE), ("log_monitor", NICE), ("raylet", 0)]
)
def test_what_only_shows_and_tells_lets_the_others_go_first(process_type, more):
    def start(command, process_type):
        return Info(subprocess.Popen(command, stdin=subprocess.PIPE))

    command = [sys.executable, "-c", "input()"]
    spectators = []
    with adapt_start(start, None, spectators)(command, process_type).process as process:
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + more)
        assert spectators == ([process] if more else [])
        process.communicate(b"\n")


def test_the_agents_are_wanted_with_the_dashboard_and_not_before():
    said, _ = run(
        "print(agents.postponed, agents.rung.is_set(), agents.followed)\n"
        "wanted.set()\n"
        # Behind the others, whose lines would be mixed with this one.
        "begun.wait(60)\n"
        "print('rung', agents.rung.wait(60))\n"
        "node.kill_all_processes()"
    )
    assert said[1] == "True False []"
    assert "rung True" in said[2:]


def await_end(pid):
    until = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_gcs_is_not_asked_to_go_but_gone_behind_the_others():
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); input()"
    said, code = run(
        f"gcs = subprocess.Popen([sys.executable, '-c', {deaf!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "gcs.stdout.readline()\n"
        "node.all_processes['gcs_server'] = [types.SimpleNamespace(process=gcs)]\n"
        "import atexit; atexit.register(print, 'too late')\n"
        "print(gcs.pid, flush=True)\n"
        "node.kill_all_processes(check_alive=False, allow_graceful=True)"
    )
    assert code == 1
    assert said[-1] == "the others end False True"
    await_end(int(said[-2]))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_waits_imports_at_once_is_told_its_cluster_later_and_hands_nobody_its_stdin(tmp_path):
    code = (
        "import os, sys\n"
        "from raysm.bootstrap import ray_internals, ray_start\n"
        "def command():\n"
        "    print(sys.argv[1:], os.path.samestat(os.fstat(0), os.stat(os.devnull)))\n"
        "ray_internals.COMMAND.replace(lambda _: command)\n"
        "class Client:\n"
        "    def __init__(self, address): print('looks for', address)\n"
        "    def get_all_node_info(self, timeout): return ['the first']\n"
        "ray_internals.GCS_CLIENT.replace(lambda _: Client)\n"
        "sys.argv[1:] = ['--wait', '--workers=1', 'start', '--block']\n"
        "ray_start.main()"
    )
    run = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 180}
    ended = subprocess.run([sys.executable, "-c", code], input="10.0.0.1:6379\n", **run)
    assert ended.stdout.splitlines() == [
        "looks for 10.0.0.1:6379",
        "['start', '--block', '--address=10.0.0.1:6379'] True",
    ]
