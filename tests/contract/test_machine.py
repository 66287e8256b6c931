"""Tests of ``raysm.contract.machine``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.contract.machine import cgroup_value, memory_limit, memory_used


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_elsewhere_the_process_says_which_group_is_its_own(tmp_path):
    files = {
        "proc/self/cgroup": "0::/system.slice/job\n",
        "sys/fs/cgroup/memory.max": "1",
        "sys/fs/cgroup/system.slice/job/memory.max": "2048",
    }
    assert memory_limit(write(tmp_path, files)) == 2048


def test_version_1_has_a_tree_for_each_controller(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4096",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
    }
    root = write(tmp_path, files)
    assert memory_limit(root) == 4096
    assert cgroup_value(root, "cpu", "cpu.cfs_quota_us") == "150000"


def test_what_the_kernel_takes_back_is_not_in_use(tmp_path):
    files = {"sys/fs/cgroup/memory.current": "1000", "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 400\n"}
    assert memory_used(write(tmp_path, files)) == 600


AUTOGROUP = Path("/proc/self/autogroup")

GO_FIRST = """
import os, subprocess, sys
from raysm.contract.machine import go_first
def nice(): return open("/proc/self/autogroup").read().split()[-1]
if sys.argv[1:]:
    go_first()
    print(nice(), os.getsid(0) == os.getpid(), flush=True)
else:
    subprocess.run([sys.executable, __file__, "worker"], check=True)
    print(nice())
"""


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="the kernel shares the CPU among processes alone")
def test_a_worker_leaves_its_session_which_gives_way(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(GO_FIRST)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, start_new_session=True, env=env
    )
    assert ended.stdout.split() == ["0", "True", "10"]
