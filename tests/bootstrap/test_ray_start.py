"""``ray start`` with what Ray has no switch for."""

import os
import subprocess
import sys
from collections import namedtuple

import pytest

from raysm.bootstrap.ray_start import NICE, adapted

Info = namedtuple("Info", ["process"])
RAYLET = ["raylet", "--num_prestart_python_workers=96", "--port=1"]


def test_as_many_workers_are_started_ahead_as_are_asked_for():
    seen = []
    adapted(lambda command, process_type: seen.append(command), 1)(RAYLET, "raylet")
    adapted(lambda command, process_type: seen.append(command), None)(RAYLET, "raylet")
    assert seen == [["raylet", "--num_prestart_python_workers=1", "--port=1"], RAYLET]


@pytest.mark.parametrize(("process_type", "more"), [("dashboard", NICE), ("log_monitor", NICE), ("raylet", 0)])
def test_what_only_shows_and_tells_lets_the_others_go_first(process_type, more):
    def start(command, process_type):
        return Info(subprocess.Popen(command, stdin=subprocess.PIPE))

    command = [sys.executable, "-c", "input()"]
    with adapted(start, None)(command, process_type).process as process:
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + more)
        process.communicate(b"\n")


def test_ray_still_starts_its_processes_where_the_adaption_expects(tmp_path):
    # Each of these may go away with a new Ray: then its part would be left out without a word.
    code = (
        "import inspect, ray._private.services as services, ray._private.ray_constants as constants\n"
        "assert list(inspect.signature(services.start_ray_process).parameters)[:2] == ['command', 'process_type']\n"
        "assert 'num_prestart_python_workers=' in inspect.getsource(services.start_raylet)\n"
        "names = constants.PROCESS_TYPE_DASHBOARD, constants.PROCESS_TYPE_LOG_MONITOR, constants.PROCESS_TYPE_MONITOR\n"
        "print(*names, services.ProcessInfo._fields[0])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stdout.split() == ["dashboard", "log_monitor", "monitor", "process"]
