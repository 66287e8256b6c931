"""What a program reports to Ray Train: the first values that are not finite are said, and end the job if asked."""

import math
import subprocess
import sys

import numpy
import pytest

from raysm.core.protocol.events import parse
from raysm.errors import MetricDiverged
from raysm.instance.work import ray_train
from raysm.instance.work.ray_train import report_not_finite


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(ray_train, "_said", set())


def reported(capsys):
    return [parse(text) for text in capsys.readouterr().out.splitlines()]


def test_each_metric_that_is_not_finite_is_reported_once_with_step_and_rank(capsys):
    values = [(1.0, 1.0), (math.nan, 1.0), (math.nan, numpy.float32("inf"))]
    for step, (loss, score) in enumerate(values):
        report_not_finite({"loss": loss, "val/score": score, "note": "nan", "step": step}, 9, 2)
    assert [(each.name, each.step, each.rank) for each in reported(capsys)] == [
        ("loss", 1, 2),
        ("val/score", 2, 2),
    ]


@pytest.mark.parametrize(("more", "step"), [({"epoch": 4}, 4), ({"step": 0.5}, 9), ({}, 9)])
def test_step_is_that_of_the_metrics_or_the_number_of_the_report(capsys, more, step):
    report_not_finite({"loss": math.nan, **more}, 9, 0)
    assert [each.step for each in reported(capsys)] == [step]


def test_metric_at_which_the_job_ends_raises_before_ray_train_keeps_the_report(monkeypatch):
    monkeypatch.setenv("RAYSM_STOP_ON_NAN", "loss")
    report_not_finite({"accuracy": math.nan}, 1, 2)
    with pytest.raises(MetricDiverged, match="^loss is inf at step 2 on rank 2$"):
        report_not_finite({"loss": math.inf}, 2, 2)


def test_worker_of_ray_checks_what_is_given_to_ray_train():
    pytest.importorskip("ray.train")
    code = (
        "import sys\n"
        "from raysm.instance.ray_imports import check_reports\n"
        "sys.meta_path.insert(0, check_reports())\n"
        "import ray.train\n"
        "from ray.train.v2.api import train_fn_utils as utils\n"
        "from types import SimpleNamespace\n"
        "utils.get_context = lambda: SimpleNamespace(get_world_rank=lambda: 3)\n"
        "from raysm.instance.work import ray_train\n"
        "ray_train.report_not_finite = lambda *given: print(*given, flush=True)\n"
        "for loss in (1, 2):\n"
        "    try:\n"
        "        ray.train.report({'loss': loss})\n"
        "    except Exception as error:\n"
        "        print(type(error).__module__.partition('.')[0], flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[::2] == ["{'loss': 1} 1 3", "{'loss': 2} 2 3"]
    # Ray's own function was called: it refuses a process that is no worker.
    assert len(lines) == 4
