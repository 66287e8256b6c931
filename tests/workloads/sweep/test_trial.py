"""Around the user's function: values, seeds, reasons and checkpoints."""

import os

import numpy as np
import pytest
import torch

import raysm
from raysm.errors import InvalidRequest
from raysm.request.sweep import FunctionSweep
from raysm.workloads.folders import PIECE_BYTES
from raysm.workloads.report import Report
from raysm.workloads.sweep.head_files import HeadFiles, download, serve_files, upload
from raysm.workloads.sweep.trial import TrialRun, metrics_of


@pytest.mark.parametrize(
    ("value", "metrics"),
    [
        (0.5, {"loss": 0.5}),
        (3, {"loss": 3.0}),
        (torch.tensor([0.25]), {"loss": 0.25}),
        (np.float32(0.5), {"loss": 0.5}),
        ({"loss": 1, "rows": np.int64(7), "name": "a", "ok": True}, {"loss": 1.0, "rows": 7.0}),
        (None, {}),
        (True, {}),
        ("0.5", {}),
        (torch.zeros(3), {}),
        (print, {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_functions_value_is_the_metric_or_several_by_name(value, metrics):
    assert metrics_of(value, "loss") == metrics


def test_a_population_needs_a_checkpoint_with_each_report(tmp_path):
    space = {"x": raysm.uniform(0, 1)}
    workload = FunctionSweep(name="train", python="3.11", space=space, metric="loss", mode="min", stop="pbt")
    run = TrialRun(workload=workload, here=None, assignment=None, folder=tmp_path, deliver=print)
    with pytest.raises(InvalidRequest, match="stop='pbt' lets trials continue with the weights of others"):
        run.take(Report(metrics={"loss": 1.0}))


def test_checkpoints_travel_to_the_head_and_back(ray_here, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "empty").write_bytes(b"")
    (source / "whole").write_bytes(os.urandom(PIECE_BYTES))
    (source / "deep" / "large").write_bytes(os.urandom(PIECE_BYTES * 2 + 5))
    files = serve_files(tmp_path / "root", ray_here.get_runtime_context().get_node_id())
    upload(files, source, "3/abc")
    assert [path.name for path in (tmp_path / "root" / "3").iterdir()] == ["abc"]
    download(files, "3/abc", tmp_path / "back")
    ray_here.kill(files)
    for name in ("empty", "whole", "deep/large"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()


def test_paths_outside_of_the_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="outside"):
        HeadFiles(str(tmp_path / "root")).write("../secret", "file", b"")
