"""What of raysm travels, and that it is packed once."""

import io
import os
import re
import zipfile
from pathlib import PurePosixPath

import pytest

from raysm.contract.library import kept_library, library


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    (folder / "room").mkdir(parents=True)
    (folder / "__init__.py").write_text("a = 1\n")
    (folder / "room" / "b.py").write_text("b = 1\n")
    (folder / "data.csv").write_text("left at home")
    return folder


def kept(package):
    return sorted((package / "__pycache__").glob("raysm.zip.*"))


def names_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist()


def test_modules_are_packed_once_and_anew_when_one_has_changed_is_gone_or_was_added(package):
    first = kept_library(package)
    assert names_of(first) == ["package/__init__.py", "package/room/b.py"]
    (file,) = kept(package)
    assert file.read_bytes() == first
    # What is there is taken: nothing is packed a second time.
    file.unlink()
    assert kept_library(package) == first
    file.write_bytes(b"kept")
    assert kept_library(package) == b"kept"
    (package / "room" / "b.py").write_text("b = 2\n")
    os.utime(package / "room" / "b.py", ns=(1, 1))
    assert kept_library(package) != b"kept"
    (package / "c.py").write_text("")
    assert "package/c.py" in names_of(kept_library(package))
    (package / "c.py").unlink()
    assert names_of(kept_library(package)) == names_of(first)
    assert len(kept(package)) == 1


def test_what_cannot_be_kept_is_packed_all_the_same(package):
    (package / "__pycache__").write_text("no folder")
    assert names_of(kept_library(package)) == ["package/__init__.py", "package/room/b.py"]


def test_who_wants_nothing_to_be_kept_is_left_nothing(package):
    assert kept_library(package, keep=False)
    assert not kept(package)


def test_what_c_files_include_travels_with_them():
    with zipfile.ZipFile(io.BytesIO(library())) as archive:
        names = set(archive.namelist())
        sources = {name: archive.read(name).decode() for name in names if name.endswith(".c")}
    included = {
        str(PurePosixPath(name).with_name(header))
        for name, text in sources.items()
        for header in re.findall(r'#include "(.+)"', text)
    }
    assert included
    assert included <= names
