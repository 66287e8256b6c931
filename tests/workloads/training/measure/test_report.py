"""A training that says at its end where its time went, and what to try."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from raysm.contract.events import Metric, parse
from raysm.contract.result import TRAINING, Measured
from raysm.workloads.training.loop import session
from raysm.workloads.training.measure import Picture, RankTime, bottleneck, py
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
    return next(found for found in session.current().observers if isinstance(found, py.Measuring))


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
    observer()._emitted_s -= py.EMIT_EVERY_S
    session.current().position.steps = 0
    observer().on_step_end(1, 0.5)
    assert not any(map(parse, capsys.readouterr().out.splitlines()))


def test_steps_are_announced_as_metrics_now_and_then(job, capsys):
    train(1)
    observer()._emitted_s -= py.EMIT_EVERY_S
    step((torch.randn(8, 64), torch.randn(8, 64)))
    assert not any(map(parse, capsys.readouterr().out.splitlines())), "a warm-up step says nothing"
    observer()._emitted_s -= py.EMIT_EVERY_S
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


def picture(**fields):
    shares = {"data": 0.01, "checkpoint": 0.0, "communication": 0.02, "other": 0.01}
    shares |= {name: fields.pop(name) for name in shares.keys() & fields.keys()}
    computing = 1 - sum(share or 0 for share in shares.values())
    return Picture(**{"steps": 1000, "step_s": 0.1, "computing": computing} | shares | fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"data": 0.41}, "41 % of the step waits for data: more loader workers"),
        ({"data": 0.41, "usage": {"cpu_percent": 97.0}}, "the CPUs are 97 % busy"),
        ({"checkpoint": 0.08}, "8 % of the time goes into checkpoints: save 4 times more rarely"),
        ({"communication": 0.3}, "30 % of the step waits for communication: a larger batch per worker"),
        ({"communication": 0.3, "device": "cuda"}, "precision='bf16'"),
        ({"communication": 0.3, "usage": {"network_sent_bytes_per_s": 2e9}}, "2,000 MB/s"),
        ({"communication": 0.3, "pipeline": 4}, "more micro-batches"),
        ({"other": 0.5}, "50 % of the time goes into the loop's own code"),
        ({"usage": {"cpu_percent": 99.0}}, "96 % of the step computes, and nothing else holds it up: more or faster"),
        ({"usage": {"cpu_percent": 30.0}}, "the CPUs are 30 % busy: a larger batch"),
        ({"device": "cuda", "usage": {"gpu_percent": 35.0}}, "the GPU is 35 % busy: a larger batch"),
        ({"device": "cuda", "usage": {"gpu_percent": 99.0}}, "precision='bf16', or more or faster GPUs"),
        ({"device": "cuda", "precision": "bf16", "usage": {"gpu_percent": 99.0}}, "up: more or faster GPUs"),
    ],
)
def test_the_largest_wait_is_named_with_its_number_and_what_to_try(fields, says):
    assert says in bottleneck(picture(**fields))


def test_of_two_waits_the_larger_one_is_named():
    assert "communication" in bottleneck(picture(data=0.2, communication=0.3))
    assert "data" in bottleneck(picture(data=0.3, communication=0.2))


def test_a_rank_that_computes_longer_than_the_others_is_what_they_wait_for():
    times = [RankTime(rank=rank, host=f"algo-{rank}", computing_s=s) for rank, s in enumerate((0.1, 0.1, 0.15, 0.1))]
    said = bottleneck(picture(communication=0.3, ranks=tuple(times)))
    assert "30 % of the step waits for rank 2 on algo-2, which computes 50 % longer than the median" in said


def test_of_two_ranks_the_slower_one_is_measured_against_the_faster_one():
    times = (RankTime(rank=0, host="a", computing_s=0.1), RankTime(rank=1, host="b", computing_s=0.2))
    assert "rank 1 on b, which computes 100 % longer" in bottleneck(picture(communication=0.3, ranks=times))


def test_without_a_look_at_communication_nothing_is_said_of_it():
    assert "computes" in bottleneck(picture(communication=None))


def test_a_run_without_steps_says_so():
    assert "too few steps" in bottleneck(
        Picture(steps=0, step_s=0, data=0, checkpoint=0, communication=None, computing=0, other=0)
    )


@pytest.mark.parametrize(("steps", "step_s"), [(28, 3.0), (99, 10.0), (5000, 0.01)])
def test_a_try_is_given_no_advice(steps, step_s):
    short = {"steps": steps, "step_s": step_s, "usage": {"cpu_percent": 30.0}}
    assert bottleneck(picture(data=0.41, **short)) == "41 % of the step waits for data"
    assert bottleneck(picture(communication=0.3, **short)) == "30 % of the step waits for communication"
    assert bottleneck(picture(**short)) == "96 % of the step computes"
