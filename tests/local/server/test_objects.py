"""Objects by URI, in S3 and on this machine."""

import pytest

from raysm.errors import InvalidInput
from raysm.local.checkpoints import FolderStore
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects, S3Store, is_file, join


@pytest.fixture
def objects():
    return Objects(MotoServices())


def test_parts_are_joined_by_one_slash():
    assert join("s3://b/x/", "y", "z") == "s3://b/x/y/z"
    assert join("s3://b", "y") == "s3://b/y"


def test_checkpoints_are_kept_where_the_uri_lies(objects, tmp_path):
    assert isinstance(objects.checkpoints(tmp_path.as_uri()), FolderStore)
    assert isinstance(objects.checkpoints("s3://b/c"), S3Store)
    assert [is_file(uri) for uri in ("file:///x", "s3://b/x")] == [True, False]


@pytest.mark.parametrize("uri", ["s3://", "https://b/x", "b/x"])
def test_what_is_neither_s3_nor_a_file_is_refused(objects, tmp_path, uri):
    with pytest.raises(InvalidInput, match="neither s3://bucket/key nor file:///path"):
        objects.download(uri, tmp_path)


def test_a_file_is_moved_to_where_it_is_to_go_and_a_link_is_copied(objects, tmp_path):
    (tmp_path / "own").write_text("own")
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    objects.upload(tmp_path / "own", (tmp_path / "out" / "own").as_uri())
    objects.upload(tmp_path / "link", (tmp_path / "out" / "link").as_uri())
    assert not (tmp_path / "own").exists()
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (tmp_path / "out" / "link").read_text() == "theirs"
    assert not (tmp_path / "out" / "link").is_symlink()


def test_a_bucket_that_is_not_there_is_told_by_its_uri(objects, tmp_path):
    with pytest.raises(InvalidInput, match="s3://no-such-bucket-of-ours/x: NoSuchBucket"):
        objects.download("s3://no-such-bucket-of-ours/x", tmp_path / "x")


def test_results_of_a_home_that_was_deleted_do_not_bring_it_back(tmp_path):
    results = tmp_path / "gone" / "data"
    objects = Objects(MotoServices(), results)
    for name in ("file", "link"):
        (tmp_path / "file").touch()
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "file")
        with pytest.raises(FileNotFoundError):
            objects.upload(tmp_path / name, (results / "job" / "model" / name).as_uri())
    with pytest.raises(FileNotFoundError):
        objects.checkpoints((results / "job" / "checkpoints").as_uri()).put(tmp_path / "file", "file")
    assert not (tmp_path / "gone").exists()
    # Where somebody else is to have it, nothing has to be there.
    objects.upload(tmp_path / "file", (tmp_path / "mine" / "file").as_uri())
    assert (tmp_path / "mine" / "file").is_file()
