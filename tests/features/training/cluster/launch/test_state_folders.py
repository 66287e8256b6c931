"""The state folders of several instances are compared with that of rank 0."""

import json

import pytest

from raysm.core.protocol.paths import Paths
from raysm.features.training.cluster.launch.state_folders import (
    BLOCK_BYTES,
    MAX_BLOCKS,
    describe_differences,
    describe_restored,
    digest_state,
    remove_others,
    sample_digest,
)
from raysm.instance.work.folders import RECORD

EPOCH_9, EPOCH_10 = {"last.pt": "9"}, {"last.pt": "10"}


@pytest.mark.parametrize(
    ("of_rank_0", "other", "says"),
    [
        ({}, {}, None),
        (EPOCH_10, EPOCH_10, None),
        # The shards of torch.distributed.checkpoint: each instance has its own, and rank 0 the
        # metadata.
        ({".metadata": "a", "__0_0.distcp": "b"}, {"__1_0.distcp": "c"}, None),
        (EPOCH_10, {}, "algo-1 (rank 0) has last.pt, algo-2 has none"),
        ({}, EPOCH_9, "algo-1 (rank 0) has none, algo-2 has last.pt"),
        (EPOCH_10, EPOCH_9, "algo-2 has another last.pt"),
        ({"9.pt": "9", "10.pt": "10"}, {"9.pt": "9"}, "algo-2 lacks 10.pt"),
        ({"9.pt": "9"}, {"9.pt": "9", "10.pt": "10"}, "algo-2 also has 10.pt"),
    ],
)
def test_instances_whose_ranks_would_load_other_checkpoints_than_rank_0_are_named(
    of_rank_0, other, says
):
    found = describe_differences({"algo-1": of_rank_0, "algo-2": other, "algo-3": of_rank_0})
    assert found is None if says is None else found.endswith(says)


def test_only_files_that_the_script_wrote_are_compared(tmp_path):
    for name in ("main.py", "runs/last.pt", "__pycache__/main.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / RECORD).write_text(json.dumps({"main.py": "digest"}))
    assert list(digest_state(tmp_path)) == ["runs/last.pt"]
    assert digest_state(tmp_path / "nothing") == {}


def test_a_digest_changes_with_the_size_the_first_and_the_last_byte_of_a_large_file(tmp_path):
    path = tmp_path / "last.pt"
    digests = set()
    for offset, size in [(None, 0), (0, 0), (-1, 0), (None, 1)]:
        content = bytearray(2 * MAX_BLOCKS * BLOCK_BYTES + size)
        if offset is not None:
            content[offset] = 1
        path.write_bytes(content)
        digests.add(sample_digest(path))
    assert len(digests) == 4


def test_files_that_rank_0_lacks_are_removed_and_those_that_differ_are_named(tmp_path):
    for name in ("9.pt", "10.pt", "11.pt"):
        (tmp_path / name).write_text(name)
    of_rank_0 = {**digest_state(tmp_path), "10.pt": "another", "logs/1.txt": "new"}
    del of_rank_0["11.pt"]
    assert remove_others(tmp_path, of_rank_0) == ["10.pt", "logs/1.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10.pt", "9.pt"]


def test_states_that_the_service_restored_on_one_instance_are_compared_there(tmp_path):
    paths = Paths(tmp_path)
    assert describe_restored(paths, ["algo-1"]) is None
    paths.state("algo-2").mkdir(parents=True)
    (paths.state("algo-2") / "last.pt").touch()
    assert describe_restored(paths, ["algo-2", "algo-1"]).endswith(
        "algo-2 (rank 0) has last.pt, algo-1 has none"
    )
