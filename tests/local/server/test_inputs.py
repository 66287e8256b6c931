"""Channels on their way from a URI to this machine."""

import pytest

from raysm.errors import InvalidRequest
from raysm.local.server.definitions import Source
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.outputs import bring


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
