"""Tests of ``raysm.contract.packages``."""

import io
import os
import zipfile
from pathlib import Path

import pytest

import raysm
from raysm.contract.packages import (
    NEEDS,
    kept_library,
    name_of,
    without_credentials,
)


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


def test_what_an_image_may_lack_is_required_as_the_project_requires_it():
    text = (Path(raysm.__file__).parents[1] / "pyproject.toml").read_text()
    assert all(f'"{requirement}"' in text for requirement in NEEDS.values())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ray[default]>=2.60", "ray"),
        ("sparse_dot.topn", "sparse-dot-topn"),
        ("torch@https://host/torch.whl", "torch"),
        ("# torch", ""),
    ],
)
def test_the_package_that_a_line_names(line, name):
    assert name_of(line) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--extra-index-url https://me:p@ss@pypi.example/simple", "--extra-index-url https://***@pypi.example/simple"),
        ("package @ git+ssh://git@github.com/me/it.git@main", "package @ git+ssh://***@github.com/me/it.git@main"),
        ("https://a@one/x https://b@two/y", "https://***@one/x https://***@two/y"),
        ("plain @ https://pypi.example/plain@1.0.tar.gz", "plain @ https://pypi.example/plain@1.0.tar.gz"),
    ],
)
def test_what_stands_before_a_host_is_starred_and_nothing_else(text, shown):
    assert without_credentials(text) == shown
