"""Objects that several write to: of two that have read the same one, one writes."""

import threading

import pytest

from raysm.client.storage.s3 import Outdated, Storage, read_versioned, write_versioned
from raysm.errors import ServiceError
from tests.support.sagemaker import fake_aws

URI = "s3://kept/g/head.json"


@pytest.fixture
def service():
    with fake_aws() as fake:
        fake.service.call(
            "s3", "create_bucket", Bucket="kept", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
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


def test_what_is_gone_is_not_written_over(service):
    version = write_versioned(service, URI, b"first", None)
    Storage(service).remove_object(URI)
    with pytest.raises(Outdated):
        write_versioned(service, URI, b"second", version)
    assert read_versioned(service, URI) is None


def test_a_bucket_that_is_not_there_is_an_error_of_its_own(service):
    assert read_versioned(service, "s3://none-such/head.json") is None
    with pytest.raises(ServiceError, match="does not exist"):
        write_versioned(service, "s3://none-such/head.json", b"", None)


def test_of_many_that_write_at_one_moment_one_is_told_that_it_has(service):
    version, told = write_versioned(service, URI, b"0", None), []

    def write(number):
        try:
            write_versioned(service, URI, str(number).encode(), version)
        except Outdated:
            return
        told.append(number)

    write(1)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [1]
