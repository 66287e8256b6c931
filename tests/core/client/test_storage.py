import io

import pytest
from botocore.response import StreamingBody

from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import (
    Outdated,
    Storage,
    is_name_on_windows,
    read_versioned,
    write_versioned,
)
from raysm.core.client.targets.connection import Bucket
from raysm.errors import ServiceError
from tests.support.odd_names import ODD_NAMES, ONLY_FILES, contents, read_all, write_all
from tests.support.sagemaker import REGION, aws, fake_aws, refusal

URI = "s3://kept/g/head.json"


@pytest.fixture
def service():
    with fake_aws() as fake:
        fake.service.call(
            "s3",
            "create_bucket",
            Bucket="kept",
            CreateBucketConfiguration={"LocationConstraint": "eu-west-1"},
        )
        yield fake.service


def test_what_is_not_there_is_read_as_nothing_and_written_once(service):
    assert read_versioned(service, URI) is None
    version = write_versioned(service, URI, b"first", None)
    with pytest.raises(Outdated):
        write_versioned(service, URI, b"second", None)
    read = read_versioned(service, URI)
    assert (read.content, read.version) == (b"first", version)


def test_what_was_read_is_written_over_and_by_one_alone(service):
    version = write_versioned(service, URI, b"first", None)
    after = write_versioned(service, URI, b"second", version)
    assert after != version
    with pytest.raises(Outdated):
        write_versioned(service, URI, b"third", version)
    assert read_versioned(service, URI).content == b"second"


@pytest.fixture(params=["s3", "file"])
def store(request, remote, tmp_path):
    """A storage, and a prefix of either scheme."""
    if request.param == "file":
        return Storage(remote.service), (tmp_path / "a b").as_uri()
    Storage(remote.service).ensure_bucket(Bucket(name="bucket"), "eu-west-1")
    return Storage(remote.service), "s3://bucket/a"


class Torn:
    """An S3 whose answers begin, and break off."""

    def get_object(self, **_):
        body = StreamingBody(io.BytesIO(b"half"), content_length=8)
        return {
            "Body": body,
            "ETag": "1",
            "LastModified": None,
            "ResponseMetadata": {"HTTPHeaders": {}},
        }


@pytest.mark.parametrize("read", [lambda service, uri: Storage(service).read(uri), read_versioned])
def test_a_body_that_breaks_off_is_the_service_s_failure_and_passes(read):
    service = Service(aws(), clients=lambda name: Torn())
    with pytest.raises(ServiceError, match="s3://bucket/x: 4 read.* 8") as failed:
        read(service, "s3://bucket/x")
    assert failed.value.is_transient


def test_a_folder_lists_what_is_below_it_by_name(store):
    storage, prefix = store
    for name in ("b", "sub/c", "a", ".half.0123abcd.partial", "user.partial"):
        storage.write(f"{prefix}/{name}", name.encode())
    found = storage.folder(prefix)
    assert [(item.name, item.size) for item in found] == [
        ("a", 1),
        ("b", 1),
        ("sub/c", 5),
        ("user.partial", 12),
    ]
    assert storage.folder(f"{prefix}/none") == []


def test_objects_of_any_name_are_fetched_under_it(store, tmp_path):
    storage, prefix = store
    if prefix.startswith("file:"):
        write_all(tmp_path / "a b", names := ONLY_FILES)
    else:
        for name in (names := ODD_NAMES):
            storage.write(f"{prefix}/{name}", name.encode())
    storage.bring_all(storage.folder(prefix), tmp_path / "fetched")
    assert read_all(tmp_path / "fetched") == contents(names)


def test_objects_that_no_file_can_be_named_after_are_named_and_the_others_are_fetched(
    remote, tmp_path, caplog
):
    storage = Storage(remote.service)
    storage.ensure_bucket(Bucket(name="bucket"), "eu-west-1")
    refused = ["../evil", "/etc/evil", "y" * 300]
    for key in ("good", "sub/good", *refused):
        remote.s3.put_object(Bucket="bucket", Key=f"p/{key}", Body=key.encode())
    storage.bring_all(storage.folder("s3://bucket/p"), tmp_path / "fetched")
    assert read_all(tmp_path / "fetched") == contents(["good", "sub/good"])
    assert all(repr(key) in caplog.text for key in refused)


@pytest.mark.parametrize(
    "name", ["CON", "sub/nul.txt", "a:b", "a\\b", "what?", "dot.", "blank ", "new\nline"]
)
def test_names_that_windows_reads_as_something_else_are_known(name):
    assert not is_name_on_windows(name)
    assert is_name_on_windows("sub folder/report %201 #7.txt")


def test_an_object_whose_name_leads_out_of_the_folder_is_refused(remote, tmp_path):
    storage = Storage(remote.service)
    storage.ensure_bucket(Bucket(name="bucket"), "eu-west-1")
    remote.s3.put_object(Bucket="bucket", Key="p/../../evil", Body=b"")
    item = storage.folder("s3://bucket/p")[0]
    with pytest.raises(ServiceError, match="leads out of its folder"):
        storage.bring(item, tmp_path / "out")


def test_a_bucket_that_another_account_made_under_the_expected_name_is_refused(remote):
    expected = {"Bucket": "bucket", "ExpectedBucketOwner": "123456789012"}
    remote.fail("head_bucket", refusal("403", "Forbidden"), when=expected.__eq__)
    with pytest.raises(ServiceError, match=r"another account.*AWS\(bucket=…\)"):
        Storage(remote.service).ensure_bucket(Bucket(name="bucket", owner="123456789012"), REGION)


def test_a_bucket_that_the_user_named_is_not_made(remote):
    with pytest.raises(ServiceError, match=r"'mine' does not exist.*AWS\(bucket=…\)"):
        Storage(remote.service).ensure_bucket(Bucket(name="mine", is_named=True), REGION)
