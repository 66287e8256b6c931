"""Shards of what lies below prefixes: all of it, each object once, about equal, the same each time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.client.storage.s3 import Storage, Stored
from raysm.core.protocol.file_uri import path_of
from raysm.core.protocol.job_api import InputManifest
from raysm.errors import InvalidRequest
from raysm.features.grid.shards import _cut, shards
from tests.support.odd_names import ONLY_FILES, write_all
from tests.support.sagemaker import fake_local


def fill(remote, bucket, sizes, region="eu-west-1"):
    remote.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
    for name, size in sizes.items():
        remote.s3.put_object(Bucket=bucket, Key=name, Body=b"x" * size)


def listed(service, rows, channel="data"):
    manifests = [row[f"manifest_{channel}"] for row in rows]
    return [InputManifest.of(Storage(service).read(uri), uri) for uri in manifests]


def stored(*sizes):
    return [
        Stored(
            name=f"{number:05}", uri=f"s3://b/{number:05}", size=size, version="v", modified_s=0.0
        )
        for number, size in enumerate(sizes)
    ]


def test_a_prefix_becomes_rows_of_its_region_with_a_manifest_each(remote):
    fill(remote, "drives", {"a/1": 3, "a/2": 1, "a/sub/3": 2, "b": 9})
    rows = shards("s3://drives/a/", 2, channel="images", on=remote.service)
    assert [(row["key"], row["region"], row["input_gb"]) for row in rows] == [
        ("shard-0-of-2", "eu-west-1", 3e-9),
        ("shard-1-of-2", "eu-west-1", 3e-9),
    ]
    assert [(each.prefix, each.names) for each in listed(remote.service, rows, "images")] == [
        ("s3://drives/a/", ["1"]),
        ("s3://drives/a/", ["2", "sub/3"]),
    ]


def test_the_same_objects_are_the_same_rows(remote):
    fill(remote, "drives", {str(number): number for number in range(30)})
    assert shards("s3://drives/", 7, on=remote.service) == shards(
        "s3://drives/", 7, on=remote.service
    )


def test_of_several_prefixes_the_larger_one_has_more_shards_and_none_is_of_two(remote):
    fill(remote, "small", {str(number): 10 for number in range(10)})
    fill(remote, "large", {str(number): 30 for number in range(10)})
    rows = shards(["s3://small/", "s3://large/"], 4, on=remote.service)
    prefixes = [each.prefix for each in listed(remote.service, rows)]
    assert prefixes == ["s3://small/", "s3://large/", "s3://large/", "s3://large/"]
    assert len({row["key"] for row in rows}) == 4


def test_a_folder_of_this_machine_is_cut_too_and_has_no_region(tmp_path):
    for name in ("1", "2", "sub/3"):
        path = tmp_path / "my data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    with fake_local(tmp_path / "home") as local:
        rows = shards(str(tmp_path / "my data"), 3, on=local.service)
        assert [each.names for each in listed(local.service, rows)] == [["1"], ["2"], ["sub/3"]]
    assert not any("region" in row for row in rows)


def test_files_of_any_name_are_in_the_shards_of_a_folder_under_their_names(tmp_path):
    write_all(tmp_path / "odd #1?", ONLY_FILES)
    with fake_local(tmp_path / "home") as local:
        manifests = listed(local.service, shards(str(tmp_path / "odd #1?"), 3, on=local.service))
    assert sorted(name for each in manifests for name in each.names) == sorted(ONLY_FILES)
    assert {path_of(each.prefix) for each in manifests} == {tmp_path / "odd #1?"}


@pytest.mark.parametrize(
    ("uris", "count", "message"),
    [
        ("s3://drives/", 4, "4 shards.*3 objects"),
        ("s3://drives/none", 1, "s3://drives/none"),
        ("s3://no-such-bucket-of-ours/", 1, "'no-such-bucket-of-ours'"),
        ("s3://drives/", 0, "count.*got 0"),
        ("s3://drives/", True, "count.*got True"),
        (["s3://drives/a", "s3://drives/b"], 1, "2 prefixes.*got 1"),
        ([], 1, "0 prefixes.*got 1"),
    ],
)
def test_what_cannot_be_cut_so_is_refused_and_nothing_is_written(remote, uris, count, message):
    fill(remote, "drives", {"a": 1, "b": 1, "c": 1})
    remote.s3.calls.clear()
    with pytest.raises(InvalidRequest, match=message):
        shards(uris, count, on=remote.service)
    assert "put_object" not in [name for name, _ in remote.s3.calls]


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=60), st.data())
def test_every_object_is_in_one_shard_in_order_and_none_is_much_larger_than_its_share(sizes, data):
    objects = stored(*sizes)
    number = data.draw(st.integers(1, len(objects)))
    parts = _cut(objects, number)
    assert [each for part in parts for each in part] == objects
    assert len(parts) == number
    assert all(parts)
    weights = [sum(max(1, each.size) for each in part) for part in parts]
    # A run ends with the object that crosses its share: so it has one more at most.
    assert max(weights) <= sum(max(1, size) for size in sizes) / number + 2 * max(1, max(sizes))
