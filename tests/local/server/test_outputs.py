"""What the instances of a job left, and where it is brought."""

import tarfile
from pathlib import PurePosixPath
from random import Random
from types import SimpleNamespace

import pytest

from raysm.errors import InvalidRequest
from raysm.local.scenario import Outputs
from raysm.local.server.definitions import Output, Source
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.outputs import bring, collect, order

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


def test_the_folders_of_all_instances_are_merged_as_they_are_and_the_later_file_stays(tmp_path, bases):
    out = collected(tmp_path, bases)
    assert names_below(out) == [".x.partial", "both", "deep/head", "other"]
    assert (out / "both").read_text() == "algo-2"


def test_the_last_writer_is_the_head_or_any_instance():
    job = SimpleNamespace(head="algo-2", instances={"algo-1": None, "algo-2": None, "algo-3": None})
    chance = Random(0)
    last = {order(job, Outputs(last_writer="random"), chance)[-1] for _ in range(50)}
    assert last == set(job.instances)
    assert {order(job, Outputs(last_writer="head"), chance)[-1] for _ in range(50)} == {"algo-2"}
    assert sorted(order(job, Outputs(last_writer="random"), chance)) == sorted(job.instances)


def test_an_archive_has_the_same_files_and_nothing_of_it_is_left_on_the_way(tmp_path, bases):
    archive = collected(tmp_path, bases, archive=True)
    with tarfile.open(archive) as tar:
        assert tar.getnames() == [".x.partial", "both", "deep/head", "other"]
    assert names_below(tmp_path / "scratch") == []


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
            tar.extractall(tmp_path / "read")
        out = tmp_path / "read"
    names = ["a.ckpt", "best/shard", "epoch-3/shard", "last.ckpt"]
    assert names_below(out) == names
    assert [(out / name).read_text() for name in names] == ["whole", "weights", "weights", "whole"]
    assert not any(path.is_symlink() for path in out.rglob("*"))


@pytest.fixture
def moto():
    services = MotoServices()
    client = services.client("s3")
    client.create_bucket(Bucket="inputs")
    client.put_object(Bucket="inputs", Key="a/b", Body=b"x")
    yield services
    client.delete_object(Bucket="inputs", Key="a/b")
    client.delete_bucket(Bucket="inputs")


def test_what_is_in_s3_is_downloaded_and_a_file_stays_where_it_is(moto, tmp_path):
    (tmp_path / "own").touch()
    sources = [
        Source(name="../up", uri="s3://inputs/a/"),
        Source(name="mine", uri=(tmp_path / "own").as_uri()),
    ]
    places = bring(Objects(moto), sources, tmp_path / "channels")
    assert places == {"../up": (tmp_path / "channels" / "0", True), "mine": (tmp_path / "own", False)}
    assert (tmp_path / "channels" / "0" / "b").read_bytes() == b"x"


def test_what_is_not_there_is_told_by_its_channel(moto, tmp_path):
    with pytest.raises(InvalidRequest, match="Data download failed: channel 'train': No S3 objects found"):
        bring(Objects(moto), [Source(name="train", uri="s3://inputs/nothing")], tmp_path)


def test_what_is_downloaded_for_a_job_that_is_gone_does_not_bring_it_back(moto, tmp_path):
    with pytest.raises(FileNotFoundError):
        bring(Objects(moto), [Source(name="train", uri="s3://inputs/a/")], tmp_path / "gone" / "channels")
    assert not (tmp_path / "gone").exists()
