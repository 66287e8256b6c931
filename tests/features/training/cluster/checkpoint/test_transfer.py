"""Files of a checkpoint that ranks fetch from other instances."""

import random

import pytest

from raysm.core.protocol.store import sha256_of
from raysm.errors import InvalidConfig
from raysm.features.training.cluster.checkpoint.manifest import FileRecord
from raysm.features.training.cluster.checkpoint.transfer import (
    CHUNK_BYTES,
    FileTransfer,
    plan_transfers,
)
from tests.support.transfers import fetched


def instances(tmp_path, sizes):
    """Make a folder for each instance, and files of these sizes on ``a``; return the folders and the records."""
    folders = {host: tmp_path / host / "step" for host in "abc"}
    folders["a"].mkdir(parents=True)
    files = {}
    for name, size in sizes.items():
        path = folders["a"] / name
        path.write_bytes(random.Random(name).randbytes(size))
        files[name] = FileRecord(bytes=size, sha256=sha256_of(path))
    return folders, files


@pytest.mark.parametrize(
    ("hosts", "needs", "receivers"),
    [
        # One rank of an instance receives what the others need, too.
        (["a", "b", "b"], [["x", "y"], ["x"], ["y"]], ["b"]),
        (["b", "a", "c"], [["x", "y"], [], ["x", "y"]], ["b", "c"]),
    ],
)
def test_each_instance_whose_ranks_need_files_gets_them_whole(
    ranks, tmp_path, hosts, needs, receivers
):
    sizes = {"x": CHUNK_BYTES + 5, "y": 3}
    folders, files = instances(tmp_path, sizes)
    moved = ranks.run(3, fetched, hosts, folders, needs, {"a": set(files)}, files)
    assert moved == [len(receivers) * sum(sizes.values())] * 3
    for host in receivers:
        assert {path.name for path in folders[host].iterdir()} == set(files)
        for name in files:
            assert (folders[host] / name).read_bytes() == (folders["a"] / name).read_bytes()


def test_a_file_that_changed_since_it_was_checked_is_refused_by_its_receiver(ranks, tmp_path):
    folders, files = instances(tmp_path, {"x": 3})
    (folders["a"] / "x").write_bytes(b"???")
    answers = ranks.run(3, fetched, ["a", "b", "c"], folders, [[], ["x"], []], {"a": {"x"}}, files)
    assert (answers[0], answers[2]) == (3, 3)
    (refusal,) = answers[1]
    assert str(folders["b"] / "x") in refusal


def test_each_file_goes_once_from_an_instance_that_has_it_to_all_that_lack_it():
    has = {"a": {"1"}, "b": {"2"}, "c": set()}
    needs = {"a": {"1", "2"}, "b": {"1"}, "c": {"1"}}
    assert plan_transfers(needs, has) == [
        FileTransfer("1", "a", ("b", "c")),
        FileTransfer("2", "b", ("a",)),
    ]


def test_what_no_instance_has_is_named():
    with pytest.raises(InvalidConfig, match="file 2 "):
        plan_transfers({"a": {"1", "2"}}, {"a": {"1"}})
