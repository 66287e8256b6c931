"""What ``.ci/run`` does with a test that fails, by the very functions of it, in a folder of a few tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / ".ci" / "run"

ONCE = """
import pathlib
import pytest

@pytest.mark.long
@pytest.mark.parametrize("number", range({failing}))
def test_it(number):
    tried = pathlib.Path("tried", f"{{__name__}} {{number}}")
    if not tried.exists() or {always}:
        tried.touch()
        raise AssertionError("this time")

def test_another(): ...
"""

DRIVE = """
set -euo pipefail
work=$PWD/work
trap say_what_was_tried_twice EXIT
tests plain PYTHON -p no:randomly
echo the next stage
"""


def _run(folder, *, failing, files=1, always=False):
    for name in ("work", "tried"):
        (folder / name).mkdir()
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q -n 0\nmarkers = long: takes long\n")
    for name in ("it", "its", "more", "most")[:files]:
        (folder / f"test_{name}.py").write_text(ONCE.format(failing=failing, always=always))
    functions = re.findall(r"^(?:tests|say_what_was_tried_twice)\(\) \{\n.*?^\}\n", RUN.read_text(), re.M | re.S)
    assert len(functions) == 2
    script = "".join(functions) + DRIVE.replace("PYTHON", sys.executable)
    # What this run of the tests is told, its folder among it, is not for the one that it starts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, env=environment)


def test_what_fails_once_is_tried_again_alone_and_named_at_the_very_end(tmp_path):
    run = _run(tmp_path, failing=2)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "== once more, alone:\ntest_it.py::test_it[0]\ntest_it.py::test_it[1]\n" in run.stdout
    assert "2 passed" in run.stdout
    assert run.stdout.endswith(
        "the next stage\n"
        "== flaky tests, which passed only at the second try:\ntest_it.py::test_it[0]\ntest_it.py::test_it[1]\n"
    )


def test_what_fails_twice_ends_the_run(tmp_path):
    run = _run(tmp_path, failing=1, always=True)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "== once more, alone:\ntest_it.py::test_it[0]\n" in run.stdout
    assert "the next stage" not in run.stdout
    assert "second try" not in run.stdout


def test_many_of_one_file_are_tried_again_for_they_share_a_cluster(tmp_path):
    run = _run(tmp_path, failing=11)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "11 passed" in run.stdout


def test_those_of_more_than_three_files_have_no_second_try(tmp_path):
    run = _run(tmp_path, failing=1, files=4)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "4 failed, 4 passed" in run.stdout
    assert "once more" not in run.stdout
    assert "the next stage" not in run.stdout


def test_where_nothing_fails_nothing_is_said(tmp_path):
    run = _run(tmp_path, failing=0)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("the next stage\n")
    assert "once more" not in run.stdout
