"""The two agents that a raylet starts, and which are started when somebody wants them."""

import os
import select
import shlex
import sys
import threading
import types

import pytest

from raysm.bootstrap import ray_internals
from raysm.bootstrap.ray_agents import PROGRAM, RayAgents
from raysm.bootstrap.stand_in import UNTIL_CALLED, UNTIL_RUNG, option

NODE = "ef" * 28


def raylet(tmp_path, *python):
    """Return a raylet's command line as Ray builds it, with agents that are run by ``python``."""
    agent = shlex.join([*python, "agent.py", f"--session-dir={tmp_path}", f"--node-id={NODE}"])
    return ["raylet", f"--dashboard_agent_command={agent}", f"--runtime_env_agent_command={agent} --head", "--port=1"]


def adapted(agents, command, process_type="raylet"):
    """Return the command that Ray starts instead of ``command``."""
    return agents.adapt_start(lambda command, process_type, *, cwd: command)(command, process_type, cwd=None)


@pytest.fixture
def agents():
    """Those of a node; its bell is taken away."""
    made = RayAgents()
    yield made
    if made.bell is not None:
        os.close(made.bell)


def has_rung(agents, timeout_s=0.0):
    return bool(select.select([agents.bell], [], [], timeout_s)[0])


def test_a_raylet_starts_stand_ins_of_its_agents_with_the_agents_own_words_behind(agents, tmp_path):
    command = raylet(tmp_path, sys.executable, "-u")
    first, shown, called, last = adapted(agents, command)
    assert (first, last) == ("raylet", "--port=1")
    words = shlex.split(shown.removeprefix("--dashboard_agent_command="))
    own = [*PROGRAM, UNTIL_RUNG]
    assert words[: len(own)] == own
    assert words[len(own) + 1] == "metrics_agent_port,metrics_export_port,dashboard_agent_listen_port"
    assert words[len(own) + 2 :] == shlex.split(command[1].partition("=")[2])
    words = shlex.split(called.removeprefix("--runtime_env_agent_command="))
    own = [*PROGRAM, UNTIL_CALLED, "runtime_env_agent_port"]
    assert words == own + shlex.split(command[2].partition("=")[2])
    assert option(words, "--session-dir") == str(tmp_path)


def test_the_bell_is_a_node_s_own_and_rings_when_it_is_rung(agents, tmp_path):
    words = shlex.split(adapted(agents, raylet(tmp_path, sys.executable, "-u"))[1])
    bell = words[words.index(UNTIL_RUNG) + 1]
    assert NODE in bell
    assert os.stat(bell).st_mode & 0o077 == 0
    assert not has_rung(agents)
    agents.ring()
    assert has_rung(agents)


@pytest.mark.parametrize("python", [(sys.executable, "-m", "memray", "run"), (sys.executable,)])
def test_an_agent_that_is_run_in_another_way_begins_with_its_node(agents, tmp_path, python):
    command = raylet(tmp_path, *python)
    assert adapted(agents, command) == command
    agents.ring()  # there is no bell, and nobody who waits for it


class Client:
    """The GCS as a node asks it: busy at first, then without a dashboard, then with one."""

    def __init__(self):
        self.answers = [OSError("busy"), None, b"127.0.0.1:8265"]
        self.asked = []
        self.over = threading.Event()

    def internal_kv_get(self, key, namespace):
        self.asked.append((key, namespace))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if not self.answers:
            self.over.set()
        return answer


def test_a_node_rings_when_the_dashboard_of_its_cluster_is_there(tmp_path):
    agents = RayAgents(look_s=0.01)
    adapted(agents, raylet(tmp_path, sys.executable, "-u"))
    client = Client()
    node_class = ray_internals.NODE_CLIENT.find()  # imports Ray: not while the clock of another wait runs
    assert node_class is not None
    agents.follow_dashboard(types.SimpleNamespace(_gcs_client=client))
    assert has_rung(agents, 60)
    assert client.over.is_set()
    assert set(client.asked) == {(b"webui:url", b"dashboard")}
    os.close(agents.bell)
