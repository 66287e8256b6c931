"""Tests of ``raysm.contract.machine``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
