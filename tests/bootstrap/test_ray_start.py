"""``ray start`` with the changes for which Ray has no options."""

import shlex
import subprocess
import sys

import pytest

from raysm.bootstrap.ray_start import STAND_IN, adapt_start, stand_in_for

RAYLET = ["raylet", "--num_prestart_python_workers=96", "--port=1"]


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


def test_ray_learns_whether_the_dashboard_s_packages_are_installed_without_importing_them():
    code = """
import sys
from ray._private.utils import get_dashboard_dependency_error
from raysm.bootstrap.ray_start import defer_dashboard_packages
sys.modules["aiohttp_cors"] = None
defer_dashboard_packages()
print(type(get_dashboard_dependency_error()).__name__)
del sys.modules["aiohttp_cors"]
defer_dashboard_packages()
print(get_dashboard_dependency_error(), "aiohttp_cors" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "ModuleNotFoundError\nNone False\n"
