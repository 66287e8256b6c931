import pickle
import subprocess
import sys

import pytest
from moto.s3.models import FakeBucket

from raysm.errors import MissingDependency
from raysm.local.server.moto_internals import (
    ACCOUNT,
    INTERNALS,
    VERSION,
    Internal,
    add_bucket,
    buckets,
    log_filter,
    only_with,
    read_stored,
)
from raysm.local.server.moto_services import MotoServices


@pytest.fixture
def s3():
    client = MotoServices().client("s3")
    yield client
    for name in list(buckets()):
        for item in client.list_objects_v2(Bucket=name).get("Contents", ()):
            client.delete_object(Bucket=name, Key=item["Key"])
        client.delete_bucket(Bucket=name)


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.name)
def test_the_installed_moto_has_it_in_the_form_that_is_expected(internal):
    assert internal.gap() is None


@pytest.mark.parametrize(
    ("name", "fits", "gap"),
    [
        ("NoSuchName", callable, "no moto.s3.models.NoSuchName"),
        ("s3_backends", lambda value: False, "another moto.s3.models.s3_backends"),
        (
            "s3_backends",
            lambda value: value.gone,
            "another moto.s3.models.s3_backends than the one that is known (Attr",
        ),
    ],
)
def test_a_name_that_is_gone_or_of_another_form_is_an_error_with_motos_version_and_the_remedy(name, fits, gap):
    internal = Internal(module="moto.s3.models", name=name, purpose="keep S3", fits=fits)
    with pytest.raises(MissingDependency) as caught:
        internal.find()
    assert f"moto {VERSION} has {gap}" in str(caught.value)
    assert "needs to keep S3; install one that" in str(caught.value)


def test_a_module_that_is_gone_is_such_an_error_too():
    assert Internal(module="moto.nowhere", name="x", purpose="y").gap() == "no moto.nowhere.x"


def test_a_bucket_comes_back_from_its_pickle_with_all_that_lay_in_it(s3):
    s3.create_bucket(Bucket="a-bucket")
    s3.put_object(Bucket="a-bucket", Key="k", Body=b"content")
    pickled = pickle.dumps(buckets()["a-bucket"])
    s3.delete_object(Bucket="a-bucket", Key="k")
    s3.delete_bucket(Bucket="a-bucket")
    add_bucket("a-bucket", pickle.loads(pickled))
    assert s3.get_object(Bucket="a-bucket", Key="k")["Body"].read() == b"content"


def test_a_bucket_holds_only_what_is_wanted_for_as_long_as_that(s3):
    s3.create_bucket(Bucket="a-bucket")
    for key in ("keep/a", "drop/b"):
        s3.put_object(Bucket="a-bucket", Key=key, Body=b"x")
    bucket = buckets()["a-bucket"]
    assert isinstance(bucket, FakeBucket)
    with only_with(bucket, ("keep/",)):
        assert list(bucket.keys) == ["keep/a"]
    assert set(bucket.keys) == {"keep/a", "drop/b"}


def test_an_object_is_read_in_parts(s3):
    s3.create_bucket(Bucket="a-bucket")
    s3.put_object(Bucket="a-bucket", Key="k", Body=b"0123456789")
    assert list(read_stored("a-bucket", "k", 10, 4)) == [b"0123", b"4567", b"89"]


def test_lines_are_filtered_as_cloudwatch_does():
    matches = log_filter("ERROR")
    assert matches("an ERROR here")
    assert not matches("all is well")


def test_every_arn_names_motos_account():
    assert ACCOUNT == "123456789012"


def test_the_checklist_is_printed_and_tells_by_its_exit_status_whether_something_is_missing():
    out = subprocess.run(
        [sys.executable, "-m", "raysm.local.server.moto_internals"], capture_output=True, text=True, check=True
    ).stdout
    assert out.count("ok ") == len(INTERNALS)
    assert f"moto {VERSION}" in out
