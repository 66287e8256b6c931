"""Inputs on file systems, as they are written in a request."""

import pytest

from raysm.core.request import Input
from raysm.core.request.file_systems import file_system_at
from raysm.errors import InvalidRequest

pytestmark = pytest.mark.smoke

ID = "fs-0123456789abcdef0"


@pytest.mark.parametrize(
    ("uri", "kind", "directory", "path"),
    [
        (f"efs://{ID}", "EFS", "/", ""),
        (f"efs://{ID}/images//train/", "EFS", "/images/train", "images/train"),
        (f"fsx://{ID}/ab12/", "FSxLustre", "/ab12", ""),
        (f"fsx://{ID}/ab12/images", "FSxLustre", "/ab12/images", "images"),
    ],
)
def test_a_folder_is_told_by_its_file_system_and_path(uri, kind, directory, path):
    found = file_system_at(uri)
    assert (found.id, found.kind, found.directory, found.path) == (ID, kind, directory, path)


@pytest.mark.parametrize(
    "uri", ["s3://bucket/key", "file:///data", "data/efs", "efs", "nfs://fs-01234567/a"]
)
def test_any_other_place_is_on_no_file_system(uri):
    assert file_system_at(uri) is None


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("efs://fs-01/a", "fs-01"),
        ("efs://FS-0123456789/a", "FS-0123456789"),
        (f"efs://{ID}/a/../b", ".."),
        (f"fsx://{ID}", "MountName"),
    ],
)
def test_what_names_no_folder_of_a_file_system_is_refused(uri, told):
    with pytest.raises(InvalidRequest, match=told.replace(".", r"\.")):
        Input(uri)


@pytest.mark.parametrize(
    "options", [{"distribution": "ShardedByS3Key"}, {"mode": "FastFile"}, {"manifest": True}]
)
def test_options_for_objects_are_refused(options):
    with pytest.raises(InvalidRequest, match=ID):
        Input(f"efs://{ID}/a", **options)
