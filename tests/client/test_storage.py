import io

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from raysm.client.service import Service
from raysm.client.storage.s3 import Storage, read_versioned, split
from raysm.client.targets.connection import Bucket
from raysm.errors import InvalidRequest, ServiceError
from tests.support.sagemaker import KEYS, REGION, aws


@pytest.fixture(params=["s3", "file"])
def store(request, remote, tmp_path):
    """A storage, and a prefix of either scheme."""
    if request.param == "file":
        return Storage(remote.service), (tmp_path / "a b").as_uri()
    Storage(remote.service).ensure_bucket(Bucket(name="bucket"), "eu-west-1")
    return Storage(remote.service), "s3://bucket/a"


def test_what_is_written_is_read_and_what_is_not_there_is_none(store):
    storage, prefix = store
    storage.write(f"{prefix}/x.json", b"1")
    assert storage.read(f"{prefix}/x.json") == b"1"
    assert storage.read(f"{prefix}/y.json") is None


class Torn:
    """An S3 whose answers begin, and break off."""

    def get_object(self, **_):
        body = StreamingBody(io.BytesIO(b"half"), content_length=8)
        return {"Body": body, "ETag": "1", "LastModified": None, "ResponseMetadata": {"HTTPHeaders": {}}}


@pytest.mark.parametrize("read", [lambda service, uri: Storage(service).read(uri), read_versioned])
def test_a_body_that_breaks_off_is_the_service_s_failure_and_passes(read):
    service = Service(aws(), clients=lambda name: Torn())
    with pytest.raises(ServiceError, match="read s3://bucket/x: 4 read, but total bytes expected is 8") as failed:
        read(service, "s3://bucket/x")
    assert failed.value.is_transient


def test_a_folder_lists_what_is_below_it_by_name(store):
    storage, prefix = store
    for name in ("b", "sub/c", "a", "half.partial"):
        storage.write(f"{prefix}/{name}", name.encode())
    found = storage.folder(prefix)
    assert [(item.name, item.size) for item in found] == [("a", 1), ("b", 1), ("sub/c", 5)]
    assert storage.folder(f"{prefix}/none") == []


def test_the_version_changes_with_the_content(store):
    storage, prefix = store
    storage.write(f"{prefix}/x", b"1")
    before = storage.below(f"{prefix}/x")[0].version
    storage.write(f"{prefix}/x", b"22")
    assert storage.below(f"{prefix}/x")[0].version != before


def test_what_is_brought_here_has_its_name_and_content(store, tmp_path):
    storage, prefix = store
    storage.write(f"{prefix}/sub/x", b"1")
    paths = [storage.bring(item, tmp_path / "out") for item in storage.folder(prefix)]
    assert paths == [tmp_path / "out" / "sub" / "x"]
    assert paths[0].read_bytes() == b"1"
    assert list((tmp_path / "out").rglob("*.partial")) == []


def test_many_objects_are_listed_page_by_page(remote):
    storage = Storage(remote.service)
    storage.ensure_bucket(Bucket(name="bucket"), "eu-west-1")
    for index in range(1005):
        remote.s3.put_object(Bucket="bucket", Key=f"p/{index}", Body=b"")
    assert len(storage.folder("s3://bucket/p")) == 1005


def test_an_object_whose_name_leads_out_of_the_folder_is_refused(remote, tmp_path):
    storage = Storage(remote.service)
    storage.ensure_bucket(Bucket(name="bucket"), "eu-west-1")
    remote.s3.put_object(Bucket="bucket", Key="p/../../evil", Body=b"")
    item = storage.folder("s3://bucket/p")[0]
    with pytest.raises(ServiceError, match="leads out of its folder"):
        storage.bring(item, tmp_path / "out")


def test_a_bucket_is_made_once(remote):
    storage = Storage(remote.service)
    storage.ensure_bucket(Bucket(name="bucket", owner="123456789012"), "eu-west-1")
    storage.ensure_bucket(Bucket(name="bucket", owner="123456789012"), "eu-west-1")
    assert [name for name, _ in remote.s3.calls].count("create_bucket") == 1


def test_a_bucket_that_another_account_made_under_the_expected_name_is_refused():
    client = boto3.client("s3", region_name=REGION, **KEYS)
    with Stubber(client) as stubber:
        expected = {"Bucket": "bucket", "ExpectedBucketOwner": "123456789012"}
        stubber.add_client_error("head_bucket", "403", "Forbidden", expected_params=expected)
        storage = Storage(Service(aws(), clients={"s3": client}.__getitem__))
        with pytest.raises(ServiceError, match=r"belongs to another account.*AWS\(bucket=…\)"):
            storage.ensure_bucket(Bucket(name="bucket", owner="123456789012"), REGION)


def test_a_uri_without_bucket_is_refused():
    assert split("s3://b/a/b") == ("b", "a/b")
    with pytest.raises(InvalidRequest, match="is not s3://bucket/key"):
        split("s3:///a")


def test_a_bucket_that_the_user_named_is_not_made(remote):
    with pytest.raises(ServiceError, match=r"'mine' does not exist: check AWS\(bucket=…\)"):
        Storage(remote.service).ensure_bucket(Bucket(name="mine", is_named=True), REGION)


def test_a_bucket_that_the_user_named_need_not_be_listed():
    client = boto3.client("s3", region_name=REGION, **KEYS)
    with Stubber(client) as stubber:
        stubber.add_client_error("head_bucket", "403", "Forbidden")
        Storage(Service(aws(), clients={"s3": client}.__getitem__)).ensure_bucket(
            Bucket(name="mine", is_named=True), REGION
        )
        stubber.assert_no_pending_responses()
