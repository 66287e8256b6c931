"""The objects that a channel brings: all below a prefix, or those that a manifest lists."""

import pytest

from raysm.client.job.records import with_inputs
from raysm.client.storage.inputs import objects_of
from raysm.client.storage.s3 import Storage
from raysm.contract.job_api import InputManifest
from raysm.errors import InvalidInput
from raysm.request import Input


@pytest.fixture(params=["s3", "file"])
def images(request, remote, tmp_path):
    """A storage, and a prefix of either scheme that has some images."""
    storage = Storage(remote.service)
    prefix = "s3://bucket/images/"
    if request.param == "file":
        prefix = (tmp_path / "my images").as_uri() + "/"
    else:
        remote.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    for name in ("1", "10", "2", "sub/3"):
        storage.write(prefix + name, name.encode())
    return storage, prefix


def listing(storage, prefix, *names, at="some.manifest"):
    storage.write(prefix + at, InputManifest(prefix=prefix, names=names).content())
    return Input(prefix + at, manifest=True)


def test_of_a_prefix_they_are_all_below_it(images):
    storage, prefix = images
    names = [stored.name.removeprefix("images/") for stored in objects_of(Input(prefix), storage)]
    assert sorted(names) == ["1", "10", "2", "sub/3"]


def test_of_a_manifest_they_are_those_that_it_lists(images):
    storage, prefix = images
    found = list(objects_of(listing(storage, prefix, "sub/3", "10"), storage))
    assert [(stored.name, stored.size) for stored in found] == [("10", 2), ("sub/3", 5)]


def test_a_manifest_that_lists_what_is_not_there_is_refused(images):
    storage, prefix = images
    with pytest.raises(InvalidInput, match=r"of 3 objects that the manifest .* lists 2 are not there, .*/20 first"):
        list(objects_of(listing(storage, prefix, "1", "20", "sub/4"), storage))


def test_a_manifest_that_is_not_there_is_refused(images):
    storage, prefix = images
    with pytest.raises(InvalidInput, match="there is no manifest at .*/none"):
        list(objects_of(Input(prefix + "none", manifest=True), storage))


def test_the_state_of_a_manifests_input_is_that_of_what_it_lists_and_of_nothing_else(images):
    storage, prefix = images
    inputs = {"x": listing(storage, prefix, "1", "2")}
    before = with_inputs("d", inputs, storage)
    assert before.sizes == {"x": 2}
    storage.write(prefix + "10", b"changed")
    assert with_inputs("d", inputs, storage) == before
    storage.write(prefix + "2", b"changed")
    assert with_inputs("d", inputs, storage).digest != before.digest


def test_the_last_of_many_objects_are_found_without_a_list_of_those_before_them(remote):
    remote.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    storage = Storage(remote.service)
    for number in range(2_100):
        remote.s3.put_object(Bucket="bucket", Key=f"x/{number:04}", Body=b"")
    source = listing(storage, "s3://bucket/x/", "2042", "2043")
    remote.s3.calls.clear()
    assert [stored.name for stored in objects_of(source, storage)] == ["2042", "2043"]
    assert [name for name, _ in remote.s3.calls].count("list_objects_v2") == 1
