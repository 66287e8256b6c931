import re

import pytest

from raysm.core.client.job.records import with_inputs
from raysm.core.client.storage.inputs import carry_out, locate, objects_of
from raysm.core.client.storage.s3 import Storage
from raysm.core.protocol.job_api import InputManifest
from raysm.core.request import Input, Local
from raysm.errors import InvalidInput, InvalidRequest
from tests.support.odd_names import NOT_UTF8, ODD_NAMES, contents, write_all


@pytest.fixture(params=["s3", "file"])
def images(request, remote, tmp_path):
    """A storage, and a prefix of either scheme that has some images."""
    storage = Storage(remote.service)
    prefix = "s3://bucket/images/"
    if request.param == "file":
        prefix = (tmp_path / "my images").as_uri() + "/"
    else:
        remote.s3.create_bucket(
            Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
    for name in ("1", "10", "2", "sub/3"):
        storage.write(prefix + name, name.encode())
    return storage, prefix


def listing(storage, prefix, *names, at="some.manifest"):
    storage.write(prefix + at, InputManifest(prefix=prefix, names=names).content())
    return Input(prefix + at, manifest=True)


def test_of_a_manifest_they_are_those_that_it_lists(images):
    storage, prefix = images
    found = list(objects_of(listing(storage, prefix, "sub/3", "10"), storage))
    assert [(stored.name, stored.size) for stored in found] == [("10", 2), ("sub/3", 5)]


def test_a_manifest_that_lists_what_is_not_there_is_refused(images):
    storage, prefix = images
    with pytest.raises(InvalidInput, match=r"3 objects.*\.manifest.* 2 are not there, .*/20 "):
        list(objects_of(listing(storage, prefix, "1", "20", "sub/4"), storage))


def test_the_state_of_a_manifests_input_is_that_of_what_it_lists_and_of_nothing_else(images):
    storage, prefix = images
    inputs = {"x": listing(storage, prefix, "1", "2")}
    before = with_inputs("d", inputs, storage)
    assert before.sizes == {"x": 2}
    storage.write(prefix + "10", b"changed")
    assert with_inputs("d", inputs, storage) == before
    storage.write(prefix + "2", b"changed")
    assert with_inputs("d", inputs, storage).digest != before.digest


@pytest.fixture
def places(remote):
    remote.s3.create_bucket(
        Bucket=remote.service.places.bucket,
        CreateBucketConfiguration={"LocationConstraint": "eu-west-1"},
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
    storage = Storage(remote.service)
    return {item.name: storage.read(item.uri) for item in storage.below(uri)}


def test_a_folder_goes_below_a_prefix_named_by_its_content(remote, places, folder):
    given, sent = upload(remote, folder)
    assert sent == 3
    assert given.uri.startswith(f"{places.inputs()}/")
    assert given.uri.endswith("/")
    assert there(remote, given.uri) == {
        "a.csv": b"a.csv",
        "b.csv": b"b.csv",
        "sub/c.csv": b"sub/c.csv",
    }


def test_a_folder_of_files_of_any_name_is_uploaded_under_them(remote, places, tmp_path):
    write_all(tmp_path / "odd", ODD_NAMES)
    given, _ = upload(remote, tmp_path / "odd")
    assert there(remote, given.uri) == contents(ODD_NAMES)


@pytest.mark.parametrize("name", [NOT_UTF8, "/".join(["x" * 200] * 5)])
def test_a_file_whose_name_s3_cannot_have_is_refused_before_the_upload(
    remote, places, tmp_path, name
):
    write_all(tmp_path / "odd", [name])
    with pytest.raises(InvalidRequest) as refused:
        upload(remote, tmp_path / "odd")
    assert ascii(name)[1:4] in str(refused.value)


def test_a_manifest_of_this_machine_is_not_uploaded(remote, places, folder):
    service = remote.service
    given = {"x": Input(str(folder / "a.csv"), manifest=True)}
    with pytest.raises(InvalidRequest, match=r"'x' is .*a\.csv.*aws s3 cp"):
        locate(given, service.target, service.places)
    located, uploads = locate(given, Local(), places)
    assert (located["x"].uri, located["x"].manifest, uploads) == (
        (folder / "a.csv").as_uri(),
        True,
        [],
    )


def test_what_is_there_is_not_sent_again_and_a_changed_folder_leaves_the_old_prefix_as_it_was(
    remote, places, folder
):
    first, sent = upload(remote, folder)
    assert (upload(remote, folder), sent) == ((first, 0), 3)
    (folder / "b.csv").write_text("new")
    second, _ = upload(remote, folder)
    assert there(remote, second.uri) == {
        "a.csv": b"a.csv",
        "b.csv": b"new",
        "sub/c.csv": b"sub/c.csv",
    }
    assert there(remote, first.uri)["b.csv"] == b"b.csv"
    Storage(remote.service).remove_object(f"{second.uri}b.csv")
    assert upload(remote, folder) == (second, 1)


def test_an_empty_folder_and_a_strange_scheme_are_refused(remote, tmp_path):
    for uri in (str(tmp_path), "http://x/y", "file://host/x"):
        with pytest.raises(InvalidRequest, match=f"'x' is .*{re.escape(uri)}"):
            locate({"x": Input(uri)}, remote.service.target, remote.service.places)
