"""Objects by URI, in S3 and on this machine."""

import tarfile
from pathlib import PurePosixPath
from random import Random
from types import SimpleNamespace

import pytest

from raysm.errors import InvalidInput
from raysm.local.server.definitions import Output
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects, collect, upload_order

MODEL = PurePosixPath("model")


@pytest.fixture
def bases(tmp_path):
    """The base folders of two instances."""
    for host, names in (("algo-1", ("both", "deep/head")), ("algo-2", ("both", "other", ".x.partial"))):
        for name in names:
            path = tmp_path / host / "model" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(host)
    return [tmp_path / "algo-1", tmp_path / "algo-2"]


def names_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def collected(tmp_path, bases, **fields):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    output = Output(place=MODEL, uri=(tmp_path / "out").as_uri(), **fields)
    collect(Objects(MotoServices()), output, bases, tmp_path / "scratch", None)
    return tmp_path / "out"


def test_any_instance_may_be_the_last_writer():
    job = SimpleNamespace(head="algo-2", instances={"algo-1": None, "algo-2": None, "algo-3": None})
    chance = Random(0)
    orders = [upload_order(job, chance) for _ in range(50)]
    assert {order[-1] for order in orders} == set(job.instances)
    assert sorted(orders[0]) == sorted(job.instances)


def test_of_nothing_there_is_an_archive_only_where_there_has_to_be_one(tmp_path):
    (tmp_path / "algo-1").mkdir()
    assert not collected(tmp_path, [tmp_path / "algo-1"], archive=True).exists()
    with tarfile.open(collected(tmp_path, [tmp_path / "algo-1"], archive=True, even_empty=True)) as tar:
        assert tar.getnames() == []


@pytest.mark.parametrize("archive", [False, True])
def test_what_links_lead_to_is_kept_under_both_names(tmp_path, archive):
    model = tmp_path / "algo-1" / "model"
    (model / "epoch-3").mkdir(parents=True)
    (model / "epoch-3" / "shard").write_text("weights")
    (model / "a.ckpt").write_text("whole")
    # As Lightning leaves them (save_last="link"): a checkpoint is a file, or a folder of shards.
    (model / "last.ckpt").symlink_to("a.ckpt")
    (model / "best").symlink_to("epoch-3")
    out = collected(tmp_path, [tmp_path / "algo-1"], archive=archive)
    if archive:
        with tarfile.open(out) as tar:
            tar.extractall(tmp_path / "read", filter="data")
        out = tmp_path / "read"
    names = ["a.ckpt", "best/shard", "epoch-3/shard", "last.ckpt"]
    assert names_below(out) == names
    assert [(out / name).read_text() for name in names] == ["whole", "weights", "weights", "whole"]
    assert not any(path.is_symlink() for path in out.rglob("*"))


@pytest.fixture
def objects():
    return Objects(MotoServices())


def test_a_bucket_that_is_not_there_is_told_by_its_uri(objects, tmp_path):
    with pytest.raises(InvalidInput, match="s3://no-such-bucket-of-ours/x: NoSuchBucket"):
        objects.download("s3://no-such-bucket-of-ours/x", tmp_path / "x")


def test_results_of_a_home_that_was_deleted_do_not_bring_it_back(tmp_path):
    results = tmp_path / "gone" / "data"
    objects = Objects(MotoServices(), results)
    for name in ("file", "link"):
        (tmp_path / "file").touch()
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "file")
        with pytest.raises(FileNotFoundError):
            objects.upload(tmp_path / name, (results / "job" / "model" / name).as_uri())
    with pytest.raises(FileNotFoundError):
        objects.checkpoints((results / "job" / "checkpoints").as_uri()).put(tmp_path / "file", "file")
    assert not (tmp_path / "gone").exists()
    # Where somebody else is to have it, nothing has to be there.
    objects.upload(tmp_path / "file", (tmp_path / "mine" / "file").as_uri())
    assert (tmp_path / "mine" / "file").is_file()
