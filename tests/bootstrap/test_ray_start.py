"""``ray start`` with the changes for which Ray has no options."""

import shlex
import subprocess
import sys

import pytest

from raysm.bootstrap.ray_start import STAND_IN, adapt_start, stand_in_for

RAYLET = ["raylet", "--num_prestart_python_workers=96", "--port=1"]

NODE = """
import socket, sys, threading, types

wanted = threading.Event()
agent = socket.create_server(("127.0.0.1", 0))
info = types.SimpleNamespace(
    state=0, node_manager_address="127.0.0.1", dashboard_agent_listen_port=agent.getsockname()[1]
)

class Node:
    node_ip_address = "127.0.0.1"

    def __init__(self):
        self.all_processes = {}
        self.start_monitor()
        self.start_api_server(include_dashboard=None, raise_on_failure=False)
        print("registered", flush=True)

    def start_monitor(self):
        print("monitor", flush=True)

    def start_api_server(self, *, include_dashboard, raise_on_failure):
        assert (include_dashboard, raise_on_failure) == (None, False)
        print("dashboard", flush=True)

    def get_gcs_client(self):
        return types.SimpleNamespace(
            internal_kv_put=lambda *_: None, get_all_node_info=lambda timeout: {"node": info}
        )

def module(name, **values):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(values)

module("ray._private.node", Node=Node)
module("ray._private.ray_constants", DASHBOARD_ADDRESS="dashboard", KV_NAMESPACE_DASHBOARD=b"dashboard")
from raysm.bootstrap.ray_start import postpone_dashboard

class Port:
    host, port = "127.0.0.1", 1
    await_caller, pass_test = staticmethod(wanted.wait), staticmethod(lambda: None)

postpone_dashboard(Port)
node = Node()
agent.settimeout(0.1)
try:
    agent.accept()
    print("too early")
except TimeoutError:
    print("nothing yet", flush=True)
wanted.set()
agent.settimeout(60)
agent.accept()
print("agent", flush=True)
"""


def test_the_dashboard_and_the_agents_start_when_the_dashboard_is_wanted_and_not_before():
    ended = subprocess.run([sys.executable, "-c", NODE], capture_output=True, text=True, timeout=180)
    assert not ended.stderr
    before, after = ended.stdout.splitlines()[:2], ended.stdout.splitlines()[2:]
    assert before == ["registered", "nothing yet"]
    assert "agent" in after


def test_as_many_workers_are_started_ahead_as_are_asked_for():
    seen = []
    for workers in (1, None):
        adapt_start(lambda command, process_type: seen.append(command), workers, None, False)(RAYLET, "raylet")
    assert seen == [["raylet", "--num_prestart_python_workers=1", "--port=1"], RAYLET]


@pytest.mark.parametrize(
    ("option", "port_option", "service"),
    [
        ("--dashboard_agent_command", "--listen-port", "dashboard_agent_listen_port"),
        ("--runtime_env_agent_command", "--runtime-env-agent-port", "runtime_env_agent_port"),
    ],
)
def test_a_raylet_starts_a_stand_in_of_each_agent_with_the_agent_s_own_command_line_behind(
    option, port_option, service
):
    agent = [sys.executable, "-u", "agent.py", "--session-dir=/a folder", "--head"]
    words = shlex.split(stand_in_for(f"{option}={shlex.join(agent)}").removeprefix(f"{option}="))
    assert words[: len(STAND_IN) + 1] == [*STAND_IN, port_option]
    assert words[len(STAND_IN) + 1].split(",")[-1] == service
    assert words[len(STAND_IN) + 2 :] == agent


@pytest.mark.parametrize("python", ["python -m memray run", "python"])
def test_an_agent_that_is_run_in_another_way_starts_with_its_node(python):
    word = f"--dashboard_agent_command={python} agent.py"
    assert stand_in_for(word) == word


def test_one_that_waits_imports_at_once_is_told_its_cluster_later_and_hands_nobody_its_stdin(tmp_path):
    code = (
        "import os, sys\n"
        "from raysm.bootstrap import ray_internals, ray_start\n"
        "from raysm.bootstrap.ray_internals import Internal\n"
        "Internal.find = lambda self: {ray_internals.COMMAND: command, ray_internals.GCS_CLIENT: Client}.get(self)\n"
        "def command():\n"
        "    print(sys.argv[1:], os.path.samestat(os.fstat(0), os.stat(os.devnull)))\n"
        "class Client:\n"
        "    def __init__(self, address): print('looks for', address)\n"
        "    def get_all_node_info(self, timeout): return ['the first']\n"
        "sys.argv[1:] = ['--wait', '--workers=1', 'start', '--block']\n"
        "ray_start.main()"
    )
    run = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 180}
    ended = subprocess.run([sys.executable, "-c", code], input="10.0.0.1:6379\n", **run)
    assert ended.stdout.splitlines() == [
        "looks for 10.0.0.1:6379",
        "['start', '--block', '--address=10.0.0.1:6379'] True",
    ]
