"""How busy an instance is (CPU, memory, network, disks, GPUs), and how a step is measured."""

import json
import queue
import sys
from itertools import count
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch import nn

from raysm.core.protocol.result import TRAINING, Measured
from raysm.features.training.cluster.loop import session
from raysm.features.training.cluster.measure import bottleneck
from raysm.features.training.cluster.prepare import prepare, step
from raysm.features.training.cluster.usage import Usage, read_counters
from tests.support.pages import outputs

MIB = 2**20

IDLE = {
    "time_s": 0.0,
    "cpu_busy_s": 170.0,
    "cpu_all_s": 1010.0,
    "network_received": 1030,
    "network_sent": 204,
    "disk_read": 4096,
    "disk_written": 8192,
    "memory_bytes": 3 * MIB,
    "memory_limit_bytes": 4 * MIB,
}


def test_the_real_counters_grow():
    before = read_counters()
    sum(range(10**6))
    after = read_counters()
    assert after["time_s"] > before["time_s"]
    assert after["cpu_all_s"] >= before["cpu_all_s"] > 0
    assert 0 < after["memory_bytes"] <= after["memory_limit_bytes"] <= psutil.virtual_memory().total


class FakeNvml:
    """Behaves as pynvml does for (percent, used, total) of each GPU; ``failing`` are the functions that raise."""

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus, failing=()):
        self.gpus, self.failing, self.closed = gpus, set(failing), False

    def _call(self, name):
        if name in self.failing:
            raise self.NVMLError(f"{name} failed")

    def nvmlInit(self):  # noqa: N802 - the library's name
        self._call("init")

    def nvmlShutdown(self):  # noqa: N802
        self.closed = True
        self._call("shutdown")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        self._call("memory")
        return SimpleNamespace(used=gpu[1], total=gpu[2])

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        self._call("rates")
        return SimpleNamespace(gpu=gpu[0])


@pytest.fixture
def nvml(monkeypatch):
    """Return a function that puts a driver's library with these GPUs in the place of the real one."""

    def put(*gpus, failing=()):
        fake = FakeNvml(*gpus, failing=failing)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


def until_emitted(name, **options):
    """Read a machine's usage until that metric is emitted; return its event, what was said, and the usage."""
    emitted, lines, seconds = queue.Queue(), [], count()
    options = {"interval_s": 0.01, "emit_every_s": 3} | options

    def read():
        return IDLE | {"time_s": float(next(seconds))}

    with Usage("algo-2", emitted.put, lines.append, read=read, **options) as usage:
        while (event := emitted.get(timeout=90)).name != name:
            pass
    return event, lines, usage


def test_metrics_are_those_of_the_instance_and_without_gpus_none_is_missing(nvml):
    nvml(failing=["init"])
    event, lines, usage = until_emitted("memory_percent")
    assert (event.host, event.value) == ("algo-2", 75)
    names = {"cpu_percent", "memory_bytes", "network_sent_bytes_per_s", "disk_read_bytes_per_s"}
    assert names <= usage.means().keys()
    assert not any(name.startswith("gpu") for name in usage.means())
    assert lines == []


def test_gpus_are_read_and_their_library_closed_at_the_end(nvml):
    fake = nvml((60, 1, 4), failing=["shutdown"])
    event, lines, usage = until_emitted("gpu_percent", has_gpus=True)
    assert (event.value, usage.means()["gpu_percent"], lines) == (60, 60, [])
    assert fake.closed


@pytest.fixture
def job(tmp_path, monkeypatch):
    """This process as the only worker of a job; yields the folder of its model."""
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]})
    )
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
    assert sum(found.measures[name] for name in parts) == pytest.approx(
        found.measures["step_s"], abs=5e-6
    )
    assert found.measures["steps_per_s"] == pytest.approx(1 / found.measures["step_s"], rel=0.05)
    said = capsys.readouterr().out
    assert "raysm: steps 3 to 30, after 2 of warm-up: " in said
    assert f"raysm: {found.summary}\n" in said
    assert " % of the " in found.summary
    assert (job / TRAINING).exists()


@pytest.mark.parametrize("trial", [{}, {"RAYSM_TRIAL": "trial"}])
def test_a_job_draws_curves_of_its_steps_and_a_trial_of_a_sweep_prints_no_events(
    job, monkeypatch, capsys, trial
):
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
        ({"data": 0.41}, {}, {}, outputs("guides/training-speed.md")[0]),
        (
            {"data": 0.09, "checkpoint": 0.08},
            {},
            {},
            "8 % of the time goes into checkpoints: save more rarely",
        ),
        (
            {"between_steps": 0.5, "data": 0.2},
            {},
            {},
            "50 % of the time goes into the loop's own code",
        ),
        ({}, {"cpu_percent": 99.0}, {}, "96 % of the step computes: more or faster CPUs"),
        (
            {},
            {"gpu_percent": 35.0},
            {"device": "cuda"},
            "and yet the GPUs are 35 % busy: a larger batch",
        ),
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
