"""A training that says at its end where its time went, and what to try."""

import json

import pytest
import torch
from torch import nn

from raysm.contract.events import Metric, parse
from raysm.contract.result import TRAINING, Measured
from raysm.workloads.training import measure
from raysm.workloads.training.loop import session
from raysm.workloads.training.measure import Measuring, bottleneck
from raysm.workloads.training.prepare import prepare, step


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


def metrics(capsys):
    return [event for event in map(parse, capsys.readouterr().out.splitlines()) if isinstance(event, Metric)]


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


def test_steps_are_announced_as_metrics_but_not_those_of_the_warm_up(job, monkeypatch, capsys):
    monkeypatch.setattr(measure, "EMIT_EVERY_S", 0.0)
    train(4)
    found = metrics(capsys)
    names = {"step_s", "data_s", "forward_backward_s", "checkpoint_s", "between_steps_s"}
    assert {event.name for event in found} == names
    assert [event.step for event in found if event.name == "step_s"] == [3, 4]


def test_the_last_steps_are_announced_at_the_end(job, capsys):
    train(30)
    session.end()
    assert {event.step for event in metrics(capsys) if event.name == "step_s"} == {30}


def test_measuring_can_be_switched_off(job, monkeypatch, capsys):
    monkeypatch.setenv("RAYSM_MEASURE", "0")
    train(5)
    session.end()
    assert not (job / TRAINING).exists()
    assert "steps" not in capsys.readouterr().out


def test_each_second_of_a_step_is_counted_once(job):
    now_s = [100.0]
    measuring = Measuring(session.current(), clock=lambda: now_s[0])
    for number in range(measure.WARM_UP_STEPS + 2):
        for kind, seconds in (("data", 1), ("compute", 3), (None, 4)):
            if kind is None:
                now_s[0] += seconds
            else:
                with measuring.span(kind):
                    now_s[0] += seconds
        measuring.on_step_end(number + 1, 0.5)
    assert measuring._total == {"data": 2, "compute": 6, "between_steps": 8, "steps": 2, "wall": 16}
    measuring.on_end()


@pytest.mark.parametrize(
    ("shares", "usage", "options", "says"),
    [
        ({"data": 0.41}, {}, {}, "41 % of the step waits for data: more loader workers"),
        ({"data": 0.41}, {"cpu_percent": 97.0}, {}, "the CPUs are 97 % busy"),
        ({"data": 0.09, "checkpoint": 0.08}, {}, {}, "8 % of the time goes into checkpoints: save 4 times more rarely"),
        ({"between_steps": 0.5, "data": 0.2}, {}, {}, "50 % of the time goes into the loop's own code"),
        ({}, {"cpu_percent": 99.0}, {}, "96 % of the step computes, and nothing else holds it up: more or faster CPUs"),
        ({}, {"cpu_percent": 30.0}, {}, "the CPUs are 30 % busy: a larger batch, or more workers per instance"),
        ({}, {"gpu_percent": 35.0}, {"device": "cuda"}, "the GPUs are 35 % busy: a larger batch, or torch.compile"),
        ({}, {"gpu_percent": 99.0}, {"device": "cuda"}, "up: precision='bf16', or more or faster GPUs"),
        ({}, {"gpu_percent": 99.0}, {"device": "cuda", "precision": "bf16"}, "up: more or faster GPUs"),
        (
            {},
            {"cpu_percent": 30.0, "network_sent_bytes_per_s": 2e9},
            {"workers": 2},
            "computes and communicates, and yet the CPUs are 30 % busy: a larger batch per worker, or fewer instances, "
            "or a faster network (2,000 MB/s sent per instance)",
        ),
        ({}, {"cpu_percent": 30.0}, {"workers": 4, "pipeline": 4}, "more micro-batches"),
        ({"data": 0.41}, {}, {"has_advice": False}, "41 % of the step waits for data"),
        ({}, {"cpu_percent": 30.0}, {"has_advice": False}, "96 % of the step computes"),
    ],
)
def test_the_largest_share_is_named_with_what_to_try(shares, usage, options, says):
    said = bottleneck({"forward_backward": 0.96} | shares, usage, **options)
    assert said == says if "has_advice" in options else says in said
