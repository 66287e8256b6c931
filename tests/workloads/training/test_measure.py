"""A training that says at its end where its time went, and what to try."""

import json

import pytest
import torch
from torch import nn

from raysm.contract.result import TRAINING, Measured
from raysm.workloads.training.loop import session
from raysm.workloads.training.measure import bottleneck
from raysm.workloads.training.prepare import prepare, step
from tests.support.pages import outputs


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


def test_a_job_leaves_its_figures_and_one_sentence_beside_the_model(job, capsys):
    train(30)
    session.end()
    found = Measured.read(job)
    assert found.measures["steps"] == 30
    parts = ("data_s", "forward_backward_s", "checkpoint_s", "between_steps_s")
    assert sum(found.measures[name] for name in parts) == pytest.approx(found.measures["step_s"], abs=5e-6)
    assert found.measures["steps_per_s"] == pytest.approx(1 / found.measures["step_s"], rel=0.05)
    said = capsys.readouterr().out
    assert "raysm: steps 3 to 30, after 2 of warm-up: " in said
    assert f"raysm: {found.summary}\n" in said
    assert " % of the " in found.summary
    assert (job / TRAINING).exists()


@pytest.mark.parametrize("trial", [{}, {"RAYSM_TRIAL": "trial"}])
def test_a_job_draws_curves_of_its_steps_and_a_trial_of_a_sweep_prints_no_events(job, monkeypatch, capsys, trial):
    for name, value in trial.items():
        monkeypatch.setenv(name, value)
    train(5)
    session.end()
    assert ('"name": "step_s"' in capsys.readouterr().out) is not bool(trial)


def test_measuring_can_be_switched_off(job, monkeypatch, capsys):
    monkeypatch.setenv("RAYSM_MEASURE", "0")
    train(5)
    session.end()
    assert not (job / TRAINING).exists()
    assert "steps" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shares", "usage", "options", "says"),
    [
        ({"data": 0.41}, {}, {}, *outputs("how-to/find-what-slows-a-training.md")),
        ({"data": 0.09, "checkpoint": 0.08}, {}, {}, "8 % of the time goes into checkpoints: save more rarely"),
        ({"between_steps": 0.5, "data": 0.2}, {}, {}, "50 % of the time goes into the loop's own code"),
        ({}, {"cpu_percent": 99.0}, {}, "96 % of the step computes: more or faster CPUs"),
        ({}, {"gpu_percent": 35.0}, {"device": "cuda"}, "and yet the GPUs are 35 % busy: a larger batch"),
        (
            {},
            {"cpu_percent": 30.0},
            {"workers": 2},
            "computes and communicates, and yet the CPUs are 30 % busy: a larger",
        ),
        ({}, {"cpu_percent": 30.0}, {"workers": 4, "pipeline": 4}, "more micro-batches"),
        ({"data": 0.41}, {}, {"has_advice": False}, "41 % of the step waits for data"),
    ],
)
def test_the_largest_share_is_named_with_what_to_try(shares, usage, options, says):
    said = bottleneck({"forward_backward": 0.96} | shares, usage, **options)
    assert said == says if "has_advice" in options else says in said
