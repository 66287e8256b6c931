"""What a GPU is checked with, on the CPU: the same code, in small."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.gpu import children, processes
from tests.gpu.__main__ import main, options_of
from tests.gpu.entries import ENTRIES, Entry
from tests.gpu.figures import Figure, Findings
from tests.gpu.run_list import run_apart

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

    def exec_module(self, module):
        # Without this method Python would not call create_module.
        raise AssertionError

sys.meta_path.insert(0, Missing())
from tests.gpu.__main__ import main, run_one
sys.exit(main(sys.argv[1:], run=run_one))
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


# What it compares is compared by tests of similarity and training too, which need no GPU.
@pytest.mark.soak
def test_the_entries_that_need_torch_alone_run_where_there_is_nothing_else(tmp_path):
    command = [sys.executable, "-c", BARE.format(missing=MISSING)]
    command += ["--device", "cpu", "--out", str(tmp_path)]
    command += ["--only", "health", "similarity, exactness", "rate"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert {one["verdict"] for one in found.values()} == {"ok"}
    assert found["similarity, exactness"]["findings"]["compared"] > 300
    names = " ".join(
        figure["name"] for one in found.values() for figure in one["findings"]["figures"]
    )
    for word in (
        "float16 product",
        "times as fast as torch",
        "share of the bfloat16",
        "training.step",
    ):
        assert word in names


def findings():
    return Findings(device="a CPU", torch="2.13")


def entry(name, gpus=1, work=lambda options, findings: None, **more):
    return Entry(name=name, gpus=gpus, expected="1 to 2", source="a book", run=work, **more)


def here(entry, options, findings):
    """Run a small entry in this process."""
    entry.run(options, findings)
    return findings


def run(entries, *arguments, gpus=2):
    """Run small entries; return the exit code."""
    return main([*arguments], entries, here, gpus)


def add(value):
    return lambda options, findings: findings.add("seconds", value, "s", least=1.0, most=2.0)


def row(printed, name):
    """Return the cells of a row of the table that was printed last."""
    line = [line for line in printed.splitlines() if line.startswith(name)][-1]
    return re.split("  +", line)


def test_the_table_has_a_row_for_each_entry_with_what_was_expected_and_seen(capsys):
    wrong = lambda options, findings: findings.compare("bytes", "differ")  # noqa: E731
    entries = [entry("good", work=add(1.5)), entry("slow", work=add(3.0)), entry("bad", work=wrong)]
    assert run(entries) == 1
    printed = capsys.readouterr().out
    assert row(printed, "good  ") == ["good", "1", "1 to 2", "1.5 s", "ok"]
    assert row(printed, "slow  ") == ["slow", "1", "1 to 2", "3 s", "MISSED"]
    assert row(printed, "bad  ") == ["bad", "1", "1 to 2", "1 of 1 wrong", "WRONG"]


def test_an_entry_that_needs_more_gpus_or_a_package_is_left_out_and_fails_nothing(capsys):
    def never(options, findings):
        raise AssertionError

    entries = [entry("eight", 8, never), entry("other", 1, never, packages=("no_such_package",))]
    assert run(entries) == 0
    printed = capsys.readouterr().out
    assert row(printed, "eight  ")[-1] == "needs 8 GPUs"
    assert row(printed, "other  ")[-1] == "needs no_such_package"


def test_without_a_gpu_every_entry_is_listed_and_the_run_ends_with_0(capsys):
    assert main([], gpus=0) == 0
    printed = capsys.readouterr().out
    for one in ENTRIES:
        assert row(printed, one.name)[-1] == f"needs {one.gpus} GPU{'s' * (one.gpus > 1)}"


def test_entries_that_were_ok_are_not_run_again_and_the_others_are(tmp_path, capsys):
    ran = []

    def work(name, value):
        def run(options, findings):
            ran.append(name)
            add(value)(options, findings)

        return run

    entries = [entry("good", work=work("good", 1.5)), entry("slow", work=work("slow", 3.0))]
    assert run(entries, "--out", str(tmp_path)) == 1
    entries += [entry("new", work=work("new", 1.0))]
    run(entries, "--out", str(tmp_path))
    assert ran == ["good", "slow", "slow", "new"]
    assert row(capsys.readouterr().out, "good  ")[-2:] == ["1.5 s", "ok, done before"]


@pytest.mark.parametrize("changed", [("--seed", "1"), ("--rows", "7"), ("--device", "cpu")])
def test_entries_that_were_ok_under_other_conditions_are_run_again(changed, tmp_path, monkeypatch):
    ran = []
    entries = [entry("good", work=lambda options, findings: ran.append(options.seed))]
    run(entries, "--out", str(tmp_path), *changed)
    run(entries, "--out", str(tmp_path))
    assert len(ran) == 2
    monkeypatch.setattr("tests.gpu.run_list.sources", lambda: "the next commit")
    run(entries, "--out", str(tmp_path))
    run(entries, "--out", str(tmp_path))
    assert len(ran) == 3
    (kept,) = json.loads((tmp_path / "results.json").read_text()).values()
    assert kept["conditions"]["commit"] == "the next commit"


HANGS = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 2:
    # As torchrun starts its ranks.
    rank = subprocess.Popen([sys.executable, *sys.orig_argv[1:], "rank"], start_new_session=True)
    pathlib.Path(sys.argv[1]).write_text(str(rank.pid))
    os.kill(os.getppid(), signal.SIGUSR1)
time.sleep(600)
"""


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupts():
    """Let SIGUSR1 interrupt this process, as SIGTERM does in a run of the list."""

    def interrupt(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_ranks_of_a_command_that_hangs_are_killed_with_it(tmp_path):
    path = tmp_path / "rank"
    command = [sys.executable, "-c", HANGS, str(path)]
    with pytest.raises(Interrupted):
        children.run(command, limit_s=600, grace_s=0.1, stdout=subprocess.PIPE)
    rank = int(path.read_text())
    assert not psutil.pid_exists(rank) or psutil.Process(rank).status() == psutil.STATUS_ZOMBIE


def test_command_that_runs_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        children.run(["sleep", "600"], limit_s=0.1)


def test_command_that_ends_in_time_returns_its_code_and_output():
    command = [sys.executable, "-c", "print('here', end=''); raise SystemExit(3)"]
    done = children.run(command, limit_s=60, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (3, "here")


@pytest.mark.parametrize(
    ("device", "rate"),
    [
        ("NVIDIA A100-SXM4-80GB", 300e9),
        ("NVIDIA H100 80GB HBM3", 450e9),
        ("NVIDIA A100 80GB PCIe", processes.PCIE),
        ("NVIDIA H100 NVL", processes.PCIE),
        ("NVIDIA A10G", processes.PCIE),
    ],
)
def test_cards_have_the_bandwidth_of_pcie_whatever_their_gpu_is(device, rate):
    assert processes.link_rate(device) == rate


def test_an_entry_whose_process_ends_without_an_answer_is_wrong():
    options = options_of(["--device", "cpu"])
    found = run_apart(entry("no entry has this name"), options, findings())
    assert found.verdict == "WRONG"
    assert "ended without an answer" in found.wrong[0]


def test_a_file_is_written_only_where_it_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, files in (([], []), (["--out", "there"], ["there/results.json"])):
        run([entry("good", work=add(1.5))], *options)
        assert [path.as_posix() for path in Path().rglob("*.json")] == files


def test_a_figure_out_of_its_range_and_a_wrong_answer_are_told():
    missed = Figure(name="speed", value=2.9, least=3.0)
    assert (missed.is_missed, Figure(name="speed", value=3.0, least=3.0).is_missed) == (True, False)
    assert Figure(name="error", value=2.0, most=1.0).is_missed
    assert Figure(name="speed", value=float("nan"), least=3.0).is_missed
    assert "MISSED" in missed.line()
    every = findings()
    every.add("seconds", 1.0)
    every.compare("rows", "")
    assert every.verdict == "ok"
    every.compare("rows", "3 differ")
    assert (every.verdict, every.compared, every.lines()[-1]) == ("WRONG", 2, "rows: 3 differ")
    assert Findings.of_json(json.loads(json.dumps(every.as_json()))) == every
