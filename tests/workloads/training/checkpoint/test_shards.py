"""One checkpoint to disk and back, in one process."""

import hashlib

import pytest
import torch

from raysm.errors import InvalidRequest
from raysm.workloads.training.checkpoint import shards


@pytest.fixture
def saved(tmp_path):
    """A folder with a checkpoint of two tensors, and the files that were recorded."""
    files, staging = {}, shards.stager()
    state = {"model": {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}, "step": 7}
    shards.save(state, tmp_path, group=None, staging=staging, complete=files.update).result(timeout=60)
    staging.close()
    return tmp_path, files


def test_every_file_is_recorded_with_its_digest(saved):
    folder, files = saved
    assert shards.METADATA in files
    assert {path.name for path in folder.iterdir()} == set(files)
    for name, record in files.items():
        content = (folder / name).read_bytes()
        assert (record.bytes, record.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_what_was_saved_is_read_in_place(saved):
    folder, files = saved
    state = {"model": {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, "step": 0}
    needed, wanted, there = shards.plan(state, folder)
    assert wanted == there == {"model.weight", "model.bias", "step"} == shards.entries(folder)
    assert needed <= set(files)
    shards.load(state, folder, group=None)
    assert state["model"]["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state["step"] == 7


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"model": {"other": torch.zeros(2)}}, "it has no model.other"),
        ({"model": {"bias": torch.zeros(3)}}, "[Ss]ize mismatch"),
    ],
)
def test_another_model_is_refused(saved, state, message):
    with pytest.raises(InvalidRequest, match=message):
        shards.plan(state, saved[0])
