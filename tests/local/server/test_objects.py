"""Objects by URI, in S3 and on this machine, and snapshots of S3."""

import json
import logging
import os
import re
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from random import Random
from types import SimpleNamespace

import pytest

from raysm.core.protocol.file_uri import uri_of
from raysm.core.protocol.names import LOCAL_BUCKET, MAX_RESTARTS_TAG, RESTART_TAG
from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.instance_files import MEMORY, InstanceFiles
from raysm.local.server.definitions import Definition, Output, Source
from raysm.local.server.moto_services import MotoServices, buckets, restore_buckets, save_buckets
from raysm.local.server.objects import Objects, collect, download_channels, upload, upload_order
from raysm.local.server.records import JobRecord
from tests.support.odd_names import NOT_UTF8, ODD_NAMES, ONLY_FILES, contents, read_all, write_all

MODEL = PurePosixPath("model")


@pytest.fixture
def bases(tmp_path):
    """The base folders of two instances."""
    for host, names in (
        ("algo-1", ("both", "deep/head")),
        ("algo-2", ("both", "other", ".x.partial")),
    ):
        for name in names:
            path = tmp_path / host / "model" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(host)
    return [tmp_path / "algo-1", tmp_path / "algo-2"]


def names_below(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def instance(base):
    return InstanceFiles(base=base, sees_machine=False)


def collected(tmp_path, bases, **fields):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    output = Output(place=MODEL, uri=(tmp_path / "out").as_uri(), **fields)
    collect(
        Objects(MotoServices()),
        output,
        list(map(instance, bases)),
        tmp_path / "scratch",
        pytest.fail,
        None,
    )
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
    with tarfile.open(
        collected(tmp_path, [tmp_path / "algo-1"], archive=True, even_empty=True)
    ) as tar:
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


def test_an_output_of_any_name_is_kept_under_it(tmp_path):
    write_all(tmp_path / "algo-1" / "model", ONLY_FILES)
    assert read_all(collected(tmp_path, [tmp_path / "algo-1"], archive=False)) == contents(
        ONLY_FILES
    )


def test_an_output_behind_a_link_out_of_its_instance_is_left_out_and_named(tmp_path):
    (tmp_path / "secret").write_text("of this machine")
    write_all(tmp_path / "algo-1" / "model", ["weights"])
    (tmp_path / "algo-1" / "model" / "link").symlink_to(tmp_path / "secret")
    said = []
    output = Output(place=MODEL, uri=uri_of(tmp_path / "out"), archive=False)
    collect(
        Objects(MotoServices()),
        output,
        [instance(tmp_path / "algo-1")],
        tmp_path / "scratch",
        said.append,
        None,
    )
    assert read_all(tmp_path / "out") == contents(["weights"])
    assert ["model/link" in line and str(tmp_path / "secret") in line for line in said] == [True]


def test_an_output_whose_name_s3_cannot_have_is_named_and_the_others_are_kept(tmp_path):
    write_all(tmp_path / "algo-1" / "model", ONLY_FILES)
    services, said = MotoServices(), []
    client = services.client("s3")
    client.create_bucket(Bucket="odd-names")
    objects = Objects(services)
    output = Output(place=MODEL, uri="s3://odd-names/out", archive=False)
    collect(
        objects, output, [instance(tmp_path / "algo-1")], tmp_path / "scratch", said.append, None
    )
    objects.download("s3://odd-names/out/", tmp_path / "fetched")
    assert read_all(tmp_path / "fetched") == contents(ODD_NAMES)
    assert [
        repr(os.fsencode(NOT_UTF8)) in said[0],
        repr("new\nline.txt") in said[1],
        len(said),
    ] == [True, True, 2]


def test_checkpoints_of_any_name_are_kept_and_removed_under_it(tmp_path):
    folder = tmp_path / "100% of #1?"
    store = Objects(MotoServices()).checkpoints(uri_of(folder))
    write_all(tmp_path / "instance", ONLY_FILES)
    for name in ONLY_FILES:
        store.put(tmp_path / "instance" / name, name)
    (tmp_path / "new").mkdir()
    store.fetch(tmp_path / "new")
    assert read_all(folder) == read_all(tmp_path / "new") == contents(ONLY_FILES)
    for name in ONLY_FILES:
        store.remove(name)
    assert read_all(folder) == {}


@pytest.fixture
def objects():
    return Objects(MotoServices())


@pytest.fixture
def stored(s3):
    """Put objects into the bucket ``stored``; the content of each is its key."""

    def store(*keys):
        put(s3, "stored", **{key: key.encode() for key in keys})

    return store


PARTS = {"part-1": "data/part-1", "part/2": "data/part/2"}
WITH_FOLDER = {key: key for key in PARTS.values()}


@pytest.mark.parametrize(
    ("prefix", "files"),
    [
        ("/data", PARTS),
        ("/data/", PARTS),
        ("/data/pa", PARTS),
        ("/data/part-1", {"part-1": "data/part-1"}),
        ("/da", WITH_FOLDER),
        ("/", WITH_FOLDER),
        ("", WITH_FOLDER),
    ],
)
def test_a_channel_has_the_objects_below_a_prefix_by_their_names_in_its_last_folder(
    objects, stored, tmp_path, prefix, files
):
    stored("data/", *PARTS.values())
    objects.download(f"s3://stored{prefix}", tmp_path / "channel")
    assert read_all(tmp_path / "channel") == {name: key.encode() for name, key in files.items()}


def manifest_in(folder, prefix, *names):
    path = folder / "some.manifest"
    path.write_text(json.dumps([{"prefix": prefix}, *names]))
    return uri_of(path)


@pytest.mark.parametrize("name", ["/{outside}", "../outside", "deep/../../outside"])
@pytest.mark.parametrize("place", ["s3", "file"])
def test_a_manifest_cannot_write_outside_of_its_channel(objects, stored, tmp_path, place, name):
    outside = tmp_path / "jobs" / "outside"
    outside.parent.mkdir()
    name = name.format(outside=str(outside)[1:])
    stored(f"data/{name}")
    (tmp_path / "outside").touch()
    (tmp_path / "data" / "deep").mkdir(parents=True)
    prefix = "s3://stored/data/" if place == "s3" else uri_of(tmp_path / "data") + "/"
    manifest = manifest_in(tmp_path, prefix, name)
    with pytest.raises(InvalidInput, match="leads out of its channel"):
        objects.download_listed(manifest, tmp_path / "jobs" / "channel")
    assert not outside.exists()


def test_a_manifest_or_a_file_in_it_that_is_missing_is_named(objects, stored, tmp_path):
    stored("data/there")
    (tmp_path / "folder").mkdir()
    missing = {
        "s3://stored/some.manifest": "s3://stored/some.manifest",
        uri_of(tmp_path / "no.manifest"): str(tmp_path / "no.manifest"),
        manifest_in(tmp_path, "s3://stored/data/", "there", "gone"): "s3://stored/data/gone",
    }
    for uri, named in missing.items():
        with pytest.raises(InvalidInput, match=re.escape(named)):
            objects.download_listed(uri, tmp_path / "channel")
    with pytest.raises(InvalidInput, match=re.escape(f"{tmp_path}/folder, which is not a file")):
        objects.download_listed(
            manifest_in(tmp_path, uri_of(tmp_path) + "/", "folder"), tmp_path / "channel"
        )


@pytest.mark.parametrize("uri", ["https://stored/data", "s3:///data", "stored/data"])
def test_a_uri_of_neither_s3_nor_a_file_is_refused(objects, stored, tmp_path, uri):
    stored("data")
    with pytest.raises(
        InvalidInput, match=re.escape(f"{uri!r} is neither s3://bucket/key nor file:///path")
    ):
        objects.download(uri, tmp_path / "channel")


def test_checkpoints_in_s3_are_those_of_their_own_folder(objects, stored, tmp_path):
    stored("run-1/a", "run-1/deep/b", "run-10/c")
    store = objects.checkpoints("s3://stored/run-1")
    store.remove("a")
    (tmp_path / "new").write_text("new")
    store.put(tmp_path / "new", "deep/new")
    (tmp_path / "fetched").mkdir()
    store.fetch(tmp_path / "fetched")
    assert read_all(tmp_path / "fetched") == {"deep/b": b"run-1/deep/b", "deep/new": b"new"}


@pytest.mark.parametrize("manifest", [False, True])
def test_only_a_copy_of_an_input_on_this_machine_belongs_to_the_job(objects, tmp_path, manifest):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").touch()
    uri = (
        manifest_in(tmp_path, uri_of(tmp_path / "data") + "/", "rows")
        if manifest
        else uri_of(tmp_path / "data")
    )
    place, is_owned = download_channels(
        objects, [Source(name="c", uri=uri, manifest=manifest)], tmp_path / "channels"
    )["c"]
    assert (place == tmp_path / "data", is_owned) == (not manifest, manifest)
    assert (place / "rows").is_file()


def test_an_output_that_cannot_be_stored_fails_a_job_but_is_no_reason_of_one_that_failed(
    objects, s3, tmp_path
):
    s3.create_bucket(Bucket="stored")
    write_all(tmp_path / "algo-1" / "model", ["weights"])
    write_all(tmp_path / "algo-1" / "output", ["why"])
    nowhere = Output(place=MODEL, uri="s3://no-such-bucket-of-ours/out")
    kept = Output(place=PurePosixPath("output"), uri="s3://stored/out")
    definition = Definition(sources=(), outputs=(nowhere, kept), instances=1, max_runtime_s=1.0)
    bases = [instance(tmp_path / "algo-1")]
    with pytest.raises(
        InvalidRequest,
        match="Artifact upload failed: s3://no-such-bucket-of-ours/out: NoSuchBucket",
    ):
        upload(objects, definition, bases, tmp_path, pytest.fail, failed=False)
    upload(objects, definition, bases, tmp_path, pytest.fail, failed=True)
    assert keys(s3, "stored") == {"out/why"}


@pytest.mark.skipif(not MEMORY.is_dir(), reason="this system has no disk in memory")
def test_a_result_is_kept_on_another_disk(objects, tmp_path):
    write_all(tmp_path, ["weights"])
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        objects.upload(tmp_path / "weights", uri_of(Path(folder, "model", "weights")))
        assert read_all(Path(folder)) == {"model/weights": b"weights"}


def test_a_bucket_that_is_not_there_is_told_by_its_uri(objects, tmp_path):
    with pytest.raises(InvalidInput, match="s3://no-such-bucket-of-ours/x.*NoSuchBucket"):
        objects.download("s3://no-such-bucket-of-ours/x", tmp_path / "x")


def test_results_of_a_home_that_was_deleted_do_not_bring_it_back(tmp_path):
    results = tmp_path / "gone" / "data"
    objects = Objects(MotoServices(), results)
    (tmp_path / "file").touch()
    for is_ours in (True, False):
        with pytest.raises(FileNotFoundError):
            objects.upload(
                tmp_path / "file", (results / "job" / "model" / "file").as_uri(), is_ours=is_ours
            )
    with pytest.raises(FileNotFoundError):
        objects.checkpoints((results / "job" / "checkpoints").as_uri()).put(
            tmp_path / "file", "file"
        )
    assert not (tmp_path / "gone").exists()
    # Where somebody else is to have it, nothing has to be there.
    objects.upload(tmp_path / "file", (tmp_path / "mine" / "file").as_uri())
    assert (tmp_path / "mine" / "file").is_file()


@pytest.fixture
def s3(tmp_path):
    # As every server makes it at its start.
    (tmp_path / "s3").mkdir()
    client = MotoServices().client("s3")
    yield client
    clear(client)


def clear(client):
    for name in list(buckets()):
        for item in client.list_objects_v2(Bucket=name).get("Contents", ()):
            client.delete_object(Bucket=name, Key=item["Key"])
        client.delete_bucket(Bucket=name)


def put(client, bucket, **objects):
    client.create_bucket(Bucket=bucket)
    for key, body in objects.items():
        client.put_object(Bucket=bucket, Key=key, Body=body)


def keys(client, bucket):
    return {item["Key"] for item in client.list_objects_v2(Bucket=bucket).get("Contents", ())}


def record(channel, secondary="MaxRuntimeExceeded", restarts="1", restart="0"):
    source = {"S3DataSource": {"S3Uri": f"s3://{LOCAL_BUCKET}/{channel}"}}
    return JobRecord(
        kind="training",
        name="a",
        arn="arn:a",
        region="us-east-1",
        request={"InputDataConfig": [{"ChannelName": "raysm", "DataSource": source}]},
        secondary=secondary,
        tags={MAX_RESTARTS_TAG: restarts, RESTART_TAG: restart},
        created_s=1.0,
        modified_s=1.0,
    )


@pytest.mark.parametrize(
    ("job", "kept"),
    [
        (record("payload"), {"payload"}),
        (record("payload", restart="1"), set()),
        (record("payload", secondary="Completed"), set()),
        (record("payload", restarts="many"), set()),
        (record("elsewhere"), set()),
    ],
    ids=["goes on", "has gone on", "completed", "odd tag", "another payload"],
)
def test_of_raysms_own_bucket_only_what_a_follow_up_job_reads_is_kept(s3, tmp_path, job, kept):
    put(s3, LOCAL_BUCKET, payload=b"x", data=b"y")
    save_buckets(tmp_path, [job])
    clear(s3)
    restore_buckets(tmp_path)
    assert keys(s3, LOCAL_BUCKET) == kept


def test_a_file_that_cannot_be_read_is_put_aside_and_told(s3, tmp_path, caplog):
    put(s3, "mine", model=b"weights")
    save_buckets(tmp_path, [])
    clear(s3)
    (path,) = (file for file in (tmp_path / "s3").rglob("mine"))
    path.write_bytes(b"torn")
    with caplog.at_level(logging.WARNING):
        restore_buckets(tmp_path)
    assert buckets() == {}
    assert "the bucket mine could not be read" in caplog.text
    (aside,) = (tmp_path / "s3" / "unreadable").iterdir()
    assert aside.read_bytes() == b"torn"
    assert str(aside) in caplog.text


def test_buckets_of_another_moto_are_left_and_told(s3, tmp_path, caplog):
    (tmp_path / "s3" / "4.0.0").mkdir(parents=True)
    (tmp_path / "s3" / "4.0.0" / "mine").write_bytes(b"of another time")
    with caplog.at_level(logging.WARNING):
        restore_buckets(tmp_path)
    assert "holds buckets that moto 4.0.0 wrote" in caplog.text
    assert (tmp_path / "s3" / "4.0.0" / "mine").exists()


def test_a_home_that_was_deleted_is_not_made_anew_by_its_buckets(s3, tmp_path):
    put(s3, "mine", model=b"weights")
    with pytest.raises(FileNotFoundError):
        save_buckets(tmp_path / "gone", [])
    assert not (tmp_path / "gone").exists()


MOUNTED = Source(name="data", uri="fsx://fs-0123456789abcdef0/ab12/images", manifest=False)


def test_a_folder_or_a_link_stands_for_a_file_system(tmp_path):
    (tmp_path / "own" / "images").mkdir(parents=True)
    (tmp_path / "file-systems").mkdir()
    (tmp_path / "file-systems" / "fs-0123456789abcdef0").symlink_to(tmp_path / "own")
    objects = Objects(MotoServices(), file_systems=tmp_path / "file-systems")
    places = download_channels(objects, [MOUNTED], tmp_path / "channels")
    path, is_owned = places["data"]
    assert (path.resolve(), is_owned) == (tmp_path / "own" / "images", False)


def test_a_file_system_that_nothing_stands_for_is_named_with_the_folder_to_make(tmp_path):
    objects = Objects(MotoServices(), file_systems=tmp_path / "file-systems")
    with pytest.raises(
        InvalidRequest, match=str(tmp_path / "file-systems" / "fs-0123456789abcdef0")
    ):
        download_channels(objects, [MOUNTED], tmp_path / "channels")
    (tmp_path / "file-systems" / "fs-0123456789abcdef0").mkdir(parents=True)
    with pytest.raises(InvalidRequest, match="has no images"):
        download_channels(objects, [MOUNTED], tmp_path / "channels")
