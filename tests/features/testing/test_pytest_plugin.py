"""The fixtures of pytest, in runs of pytest of their own."""

import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import raysm
from raysm.core.client.targets.local import find_server

ROOT = Path(raysm.__file__).parents[1]
PAGE = (ROOT / "docs" / "guides" / "test-your-own-code.md").read_text()
PLUGIN = "raysm.features.testing.pytest_plugin"
MORE = """
import pathlib
import subprocess
import sys


def waits():
    import time

    print("it waits", flush=True)
    time.sleep(600)


def test_it_fails(raysm_job, raysm_local):
    pathlib.Path(__file__).with_name("home").write_text(raysm_local.home)
    job = raysm_job(raysm.Function(waits))
    next(line for line in job.lines(follow=True) if line.text == "it waits")
    # A command of the code under test uses the same server.
    command = [sys.executable, "-m", "raysm", "jobs"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert job.name in listed.stdout
    assert job.name is None
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What pytest prints of the page's test and of ``MORE``, and their folder."""
    folder = tmp_path_factory.mktemp("users-tests")
    programs = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
    (folder / "hello.py").write_text(programs["hello.py"])
    (folder / "test_jobs.py").write_text(programs["test_hello.py"] + MORE)
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider"]
    # An installed raysm is found by its entry point too.
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [
            *command,
            f"--rootdir={folder}",
            f"--basetemp={folder / 'temporary'}",
            folder / "test_jobs.py",
        ],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout + done.stderr, folder


def test_the_test_of_the_page_passes(run):
    assert "1 failed, 1 passed" in run[0], run[0]


def test_the_report_of_a_test_that_fails_has_the_state_and_the_log_of_its_jobs(run):
    report = run[0].partition("def test_it_fails")[2]
    # The last assertion failed, so the command found the job.
    assert ">       assert job.name is None\n" in report
    assert "- job waits-" in report
    assert "InProgress\n" in report
    assert " it waits\n" in report


def test_nothing_of_the_server_is_left(run):
    home = Path((run[1] / "home").read_text())
    assert home.is_relative_to(run[1])
    assert find_server(home) is None


def test_pytest_finds_the_plugin_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"raysm": PLUGIN}
    assert pkgutil.resolve_name(PLUGIN).raysm_job
