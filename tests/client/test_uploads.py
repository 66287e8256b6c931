import json
import os

import pytest

from raysm.client.storage.inputs import carry_out, locate
from raysm.client.storage.s3 import SMALL, Storage
from raysm.errors import InvalidRequest
from raysm.request import Input, Local


@pytest.fixture
def places(remote):
    remote.s3.create_bucket(
        Bucket=remote.service.places.bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    remote.s3.calls.clear()
    return remote.service.places


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    for name in ("a.csv", "b.csv", "sub/c.csv"):
        (root / name).write_text(name)
    return root


def upload(remote, root):
    """Upload as ``submit`` does; return the input and the number of files that were sent."""
    service = remote.service
    located, needed = locate({"x": Input(str(root))}, service.target, service.places)
    return located["x"], sum(carry_out(item, Storage(service)) for item in needed)


def there(remote, uri):
    return {item.name: remote.service and Storage(remote.service).read(item.uri) for item in below(remote, uri)}


def below(remote, uri):
    return Storage(remote.service).below(uri)


def test_a_folder_goes_below_a_prefix_named_by_its_content(remote, places, folder):
    given, sent = upload(remote, folder)
    assert sent == 3
    assert given.uri.startswith(f"{places.inputs()}/")
    assert given.uri.endswith("/")
    assert there(remote, given.uri) == {"a.csv": b"a.csv", "b.csv": b"b.csv", "sub/c.csv": b"sub/c.csv"}


def test_a_folder_behind_a_link_goes_too(remote, places, folder, tmp_path):
    (folder / "sub").rename(tmp_path / "elsewhere")
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    given, sent = upload(remote, folder)
    assert sent == 3
    assert there(remote, given.uri)["sub/c.csv"] == b"sub/c.csv"


def test_a_manifest_of_this_machine_is_not_uploaded(remote, places, folder):
    service = remote.service
    given = {"x": Input(str(folder / "a.csv"), manifest=True)}
    with pytest.raises(InvalidRequest, match=r"'x' is .*, a file of this machine .*aws s3 cp"):
        locate(given, service.target, service.places)
    located, uploads = locate(given, Local(), places)
    assert (located["x"].uri, located["x"].manifest, uploads) == ((folder / "a.csv").as_uri(), True, [])


def test_a_single_file_keeps_its_name(remote, places, folder):
    given, sent = upload(remote, folder / "a.csv")
    assert sent == 1
    assert given.uri.endswith("/a.csv")
    assert there(remote, given.uri) == {"a.csv": b"a.csv"}


def test_what_is_unchanged_is_not_sent_again(remote, places, folder):
    first, _ = upload(remote, folder)
    os.utime(folder / "a.csv", (1, 1))
    remote.s3.calls.clear()
    second, sent = upload(remote, folder)
    assert (second, sent) == (first, 0)
    assert not [call for call in remote.s3.calls if call[0] in ("put_object", "upload_file", "copy")]


def test_only_the_changed_file_is_sent_and_the_old_prefix_stays_as_it_was(remote, places, folder):
    first, _ = upload(remote, folder)
    (folder / "b.csv").write_text("new")
    remote.s3.calls.clear()
    second, sent = upload(remote, folder)
    assert sent == 1
    put = [key for name, key in remote.s3.calls if name == "put_object" and not key.endswith(".json")]
    assert [key.rpartition("/")[2] for key in put] == ["b.csv"]
    assert there(remote, second.uri) == {"a.csv": b"a.csv", "b.csv": b"new", "sub/c.csv": b"sub/c.csv"}
    assert there(remote, first.uri)["b.csv"] == b"b.csv"


def test_a_change_that_keeps_size_and_time_is_seen(remote, places, folder):
    stat = (folder / "a.csv").stat()
    first, _ = upload(remote, folder)
    (folder / "a.csv").write_text("A.CSV")
    os.utime(folder / "a.csv", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second, sent = upload(remote, folder)
    assert sent == 1
    assert there(remote, second.uri)["a.csv"] == b"A.CSV"


def test_a_file_sent_in_parts_is_recognised_too(remote, places, tmp_path):
    root = tmp_path / "big"
    root.mkdir()
    (root / "big.bin").write_bytes(os.urandom(1024) * (SMALL // 1024 + 1))
    (root / "small.txt").write_text("1")
    first, sent = upload(remote, root)
    assert sent == 2
    etag = next(item.version for item in below(remote, first.uri) if item.name == "big.bin")
    assert "-" in etag  # no digest of the content
    (root / "small.txt").write_text("2")
    second, sent = upload(remote, root)
    assert sent == 1
    assert there(remote, second.uri)["big.bin"] == (root / "big.bin").read_bytes()


def test_what_was_removed_from_the_bucket_is_sent_again(remote, places, folder):
    first, _ = upload(remote, folder)
    Storage(remote.service).remove(first.uri)
    (folder / "b.csv").write_text("new")
    second, sent = upload(remote, folder)
    assert sent == 3
    assert len(there(remote, second.uri)) == 3


def test_an_index_that_somebody_broke_is_passed_over(remote, places, folder):
    upload(remote, folder)
    index = next(item for item in below(remote, places.inputs() + "/index/"))
    for broken in (b"{", b"[]", json.dumps({"x": "nonsense"}).encode()):
        Storage(remote.service).write(index.uri, broken)
        (folder / "b.csv").write_bytes(broken)
        assert upload(remote, folder)[1] == 3


def test_nothing_is_sent_before_everything_is_found(remote, folder):
    with pytest.raises(InvalidRequest, match=r"channel 'y'.*nothing is there"):
        locate({"x": Input(str(folder)), "y": Input("no/such")}, remote.service.target, remote.service.places)
    assert remote.s3.calls == []


def test_an_empty_folder_and_a_strange_scheme_are_refused(remote, tmp_path):
    for uri, words in (
        (str(tmp_path), "holds no files"),
        ("http://x/y", "give s3://"),
        ("file://host/x", "give s3://"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            locate({"x": Input(uri)}, remote.service.target, remote.service.places)


def test_on_this_machine_nothing_is_uploaded(local, folder):
    inputs = {"x": Input(str(folder)), "y": Input("s3://b/k")}
    located, needed = locate(inputs, Local(), local.service.places)
    assert needed == []
    assert {name: given.uri for name, given in located.items()} == {"x": folder.as_uri(), "y": "s3://b/k"}
