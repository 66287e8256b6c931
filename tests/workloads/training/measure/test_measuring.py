"""A training that says at its end where its time went."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from raysm.contract.events import Metric, parse
from raysm.contract.result import TRAINING, Measured
from raysm.workloads.training.loop import session
from raysm.workloads.training.measure import measuring
from raysm.workloads.training.prepare import prepare, step

SLOW_RANK = """
import sys, time, torch
from torch import nn
from raysm.workloads.training.loop import session
from raysm.workloads.training.prepare import prepare, step

def loss(output, target):
    # Long beside what a step takes on a machine that is busy with other things.
    time.sleep(0.1 * session.current().rank)
    return nn.functional.mse_loss(output, target)

model = nn.Linear(256, 256)
prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
batch = torch.randn(16, 256), torch.randn(16, 256)
for _ in range(75):  # the third look is at the 72nd
    step(batch)
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """This process as the only worker of a job; yields the folder of its model."""
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    yield tmp_path / "model"
    session.end()


def train(steps):
    model = nn.Linear(64, 64)
    prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.functional.mse_loss)
    for _ in range(steps):
        with session.current().span("data"):
            batch = torch.randn(8, 64), torch.randn(8, 64)
        step(batch)


def observer():
    return next(found for found in session.current().observers if isinstance(found, measuring.Measuring))


def test_a_job_leaves_its_figures_and_one_sentence_beside_the_model(job, capsys):
    train(30)
    session.end()
    found = Measured.read(job)
    assert found.measures["steps"] == 30
    parts = ("data_s", "forward_backward_s", "communication_s", "checkpoint_s", "between_steps_s")
    assert sum(found.measures[name] for name in parts) == pytest.approx(found.measures["step_s"], abs=5e-6)
    assert found.measures["steps_per_s"] == pytest.approx(1 / found.measures["step_s"], rel=0.05)
    said = capsys.readouterr().out
    assert "raysm: steps 3 to 30, after 2 of warm-up: " in said
    assert f"raysm: {found.summary}\n" in said
    assert " % of the " in found.summary
    assert (job / TRAINING).exists()


def test_the_figures_of_the_last_step_are_announced_too(job, capsys):
    train(30)
    session.end()
    found = [event for event in map(parse, capsys.readouterr().out.splitlines()) if isinstance(event, Metric)]
    assert {event.step for event in found if event.name == "step_s"} == {30}


def test_the_first_step_is_none_that_counts_however_long_it_takes(job, capsys):
    train(1)
    observer()._emitted_s -= measuring.EMIT_EVERY_S
    session.current().steps = 0
    observer().on_step_end(1, 0.5)
    assert not any(map(parse, capsys.readouterr().out.splitlines()))


def test_steps_are_announced_as_metrics_now_and_then(job, capsys):
    train(1)
    observer()._emitted_s -= measuring.EMIT_EVERY_S
    step((torch.randn(8, 64), torch.randn(8, 64)))
    assert not any(map(parse, capsys.readouterr().out.splitlines())), "a warm-up step says nothing"
    observer()._emitted_s -= measuring.EMIT_EVERY_S
    for _ in range(2):
        step((torch.randn(8, 64), torch.randn(8, 64)))
    found = [event for event in map(parse, capsys.readouterr().out.splitlines()) if isinstance(event, Metric)]
    assert {event.name for event in found} == {
        "step_s",
        "data_s",
        "forward_backward_s",
        "checkpoint_s",
        "between_steps_s",
    }
    assert {event.step for event in found} == {3}


def test_who_says_no_is_not_measured(job, monkeypatch, capsys):
    monkeypatch.setenv("RAYSM_MEASURE", "0")
    train(5)
    session.end()
    assert not (job / TRAINING).exists()
    assert "steps" not in capsys.readouterr().out


def test_a_step_that_the_user_profiles_is_left_to_him(job):
    model = nn.Linear(64, 64)
    prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.functional.mse_loss)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(10):
            step((torch.randn(8, 64), torch.randn(8, 64)))
    assert any(event.name == "aten::linear" for event in profile.events())
    assert observer().picture().communication is None


def test_the_rank_that_the_others_wait_for_is_named(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW_RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "% of the step waits for rank 1 on node-0, which computes" in ended.stdout, ended.stdout
    assert "USDT" not in ended.stderr
