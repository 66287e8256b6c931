"""Tests of ``raysm.bootstrap.ray_imports``."""

import json
import subprocess
import sys

import pytest

from raysm.bootstrap import ray_imports
from raysm.bootstrap.ray_start import lean

PROGRAM = """
import json, sys
before = [name for name in ("requests", "yaml") if name in sys.modules]
import ray
after = [name for name in ("requests", "yaml") if name in sys.modules]
import requests
print(json.dumps({
    "before": before, "after": after, "argv": sys.argv[1:], "name": __name__, "path": sys.path[0],
    "ray": ray.get(), "same": ray._common.usage.usage_lib.requests.get is requests.get,
    "module": type(requests).__name__,
}))
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a program and with packages named like Ray and like two that it imports."""
    files = {
        "ray/__init__.py": "from yaml import load\nget = lambda: [_common.usage.usage_lib.requests.get(), load()]\n",
        "ray/_common/usage/usage_lib.py": "import requests\n",
        "requests/__init__.py": "from requests import sessions\n\ndef get():\n    return sessions.VALUE\n",
        "requests/sessions.py": "VALUE = 7\n",
        "yaml.py": "def load():\n    return 8\n",
        "program.py": PROGRAM,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_ray_imports_a_rare_package_when_it_uses_it_and_the_program_gets_the_package_itself(folder):
    command = [sys.executable, ray_imports.__file__, str(folder / "program.py"), "--node", "1"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == {
        "before": [],
        # Only the one of which Ray took a name while it was imported.
        "after": ["yaml"],
        "argv": ["--node", "1"],
        "name": "__main__",
        "path": str(folder),
        "ray": [7, 8],
        "same": True,
        "module": "module",
    }


def test_an_error_in_the_program_ends_it_as_without_this(folder):
    (folder / "program.py").write_text("raise SystemExit(7)")
    command = [sys.executable, ray_imports.__file__, str(folder / "program.py")]
    assert subprocess.run(command, check=False).returncode == 7


def test_a_worker_and_the_log_monitor_are_run_by_it_and_a_worker_s_setup_stays_in_second_place():
    setup, worker = "/ray/_private/workers/setup_worker.py", "/ray/_private/workers/default_worker.py"
    assert lean(["python", setup, worker, "--a=b"]) == ["python", setup, ray_imports.__file__, worker, "--a=b"]
    monitor = ["python", "-u", "/ray/_private/log_monitor.py", "--x"]
    assert lean(monitor) == [*monitor[:2], ray_imports.__file__, *monitor[2:]]
    assert lean(["raylet", "--a=b"]) == ["raylet", "--a=b"]
