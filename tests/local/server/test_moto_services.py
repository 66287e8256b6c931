"""moto's services in this process, without a socket."""

import pytest

from raysm.local.server.moto_services import ACCOUNT, MotoServices


@pytest.fixture
def moto():
    return MotoServices()


def test_a_client_is_made_once_for_each_service_and_region(moto):
    assert moto.client("sts") is moto.client("sts", "us-east-1")
    assert moto.client("sts") is not moto.client("sts", "eu-west-1")


def test_a_request_is_answered_without_a_socket(moto):
    assert moto.client("sts").get_caller_identity()["Account"] == ACCOUNT


def test_an_object_whose_key_needs_quoting_comes_back_byte_for_byte(moto):
    s3, key, content = moto.client("s3"), "a b/ü+?&.bin", bytes(range(256))
    s3.create_bucket(Bucket="quoted")
    try:
        s3.put_object(Bucket="quoted", Key=key, Body=content)
        assert [item["Key"] for item in s3.list_objects_v2(Bucket="quoted")["Contents"]] == [key]
        assert b"".join(moto.open_object("quoted", key, len(content))) == content
    finally:
        s3.delete_object(Bucket="quoted", Key=key)
        s3.delete_bucket(Bucket="quoted")
