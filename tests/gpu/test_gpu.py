"""What a GPU is checked with, on the CPU: the same code, in small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.__main__ import main
from tests.gpu.figures import Figure, Findings

ROOT = Path(__file__).parents[2]

BARE = """
import sys

from importlib.machinery import ModuleSpec

class Missing:
    # Found and not to be had: torch asks for specs of packages that it does not import.
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] in {missing} else None

    def create_module(self, spec):
        raise ModuleNotFoundError(spec.name, name=spec.name)

sys.meta_path.insert(0, Missing())
from tests.gpu.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""The command on a machine that has Python, NumPy and torch, and nothing else of what the tests
have."""

MISSING = (
    "ray",
    "pyarrow",
    "pandas",
    "boto3",
    "botocore",
    "pytest",
    "hypothesis",
    "psutil",
    "sagemaker",
    "cloudpickle",
)


def findings():
    return Findings(device="a GPU", torch="2.13")


# What it compares is compared by tests of similarity and training too, which need no GPU.
@pytest.mark.soak
def test_the_whole_of_it_runs_where_there_is_nothing_but_torch(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            BARE.format(missing=MISSING),
            "--device",
            "cpu",
            "--out",
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert (written["wrong"], written["compared"] > 300) == ([], True)
    names = " ".join(figure["name"] for figure in written["figures"])
    for word in (
        "float16 product",
        "times as fast as torch",
        "share of the bfloat16",
        "training.step",
    ):
        assert word in names
    assert "0 wrong" in done.stdout
    # What a machine without Ray cannot show is said.
    assert "need Ray" in done.stdout


def test_a_file_is_written_only_where_it_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, files in (([], []), (["--out", "there"], ["there/gpu.json"])):
        main(["--device", "cpu", *options], {"nothing": lambda findings: None})
        assert [path.as_posix() for path in Path().rglob("*.json")] == files


def test_a_figure_below_its_goal_and_a_wrong_answer_fail_the_run():
    missed = Figure(name="speed", value=2.9, least=3.0)
    assert (missed.is_missed, Figure(name="speed", value=3.0, least=3.0).is_missed) == (True, False)
    assert Figure(name="speed", value=float("nan"), least=3.0).is_missed
    assert "MISSED" in missed.line()
    every = findings()
    every.figures.append(Figure(name="seconds", value=1.0))
    every.compare("rows", "")
    assert every.exit_code == 0
    every.compare("rows", "3 differ")
    assert (every.exit_code, every.compared, every.table()[-1]) == (1, 2, "rows: 3 differ")
