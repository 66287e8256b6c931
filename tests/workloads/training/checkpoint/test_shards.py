"""One checkpoint to disk and back, in one process."""

import hashlib
import os
import pickle

import numpy as np
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


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_metadata_that_names_other_classes_is_refused_and_nothing_of_it_is_run(saved, tmp_path):
    folder, _ = saved
    (folder / shards.METADATA).write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with pytest.raises(InvalidRequest, match=r"names posix\.system, which torch does not write there"):
        shards.entries(folder)
    with pytest.raises(BaseException, match=r"names posix\.system|metadata is not None"):  # the latter by torch 2.9
        shards.load({"step": 0}, folder, group=None)
    assert not (tmp_path / "ran").exists()


def test_numbers_of_numpy_are_read(tmp_path):
    staging = shards.stager()
    state = {"rates": [np.float64(0.1), np.float32(0.5), np.int64(7)]}
    shards.save(state, tmp_path, group=None, staging=staging, complete=lambda files: None).result(timeout=60)
    staging.close()
    read = {"rates": [0, 0, 0]}
    shards.load(read, tmp_path, group=None)
    assert read == state


class Custom:
    """An object that the state of a user's scheduler could hold."""


def test_an_entry_of_an_unknown_class_is_refused_unless_the_user_trusts_it(tmp_path):
    staging = shards.stager()
    saving = shards.save({"own": Custom()}, tmp_path, group=None, staging=staging, complete=lambda files: None)
    saving.result(timeout=60)
    staging.close()
    state = {"own": None}
    with pytest.raises(InvalidRequest, match="own holds an object that may run code when it is read"):
        shards.load(state, tmp_path, group=None)
    with torch.serialization.safe_globals([Custom]):
        shards.load(state, tmp_path, group=None)
    assert isinstance(state["own"], Custom)
