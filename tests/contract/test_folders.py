"""Folders that are made below one that has to be there."""

import subprocess
import sys

import pytest

from raysm.contract.folders import files_below, make_folder


def test_what_lacks_below_the_folder_that_is_there_is_made_once_or_twice(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b", within=tmp_path)
    assert (tmp_path / "a" / "b").is_dir()


def test_the_folder_that_has_to_be_there_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        make_folder(tmp_path / "gone" / "a" / "b", within=tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_where_none_has_to_be_there_all_are_made(tmp_path):
    make_folder(tmp_path / "a" / "b", within=None)
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_that_lies_elsewhere_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not in the subpath"):
        make_folder(tmp_path / "a", within=tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_told(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a", within=tmp_path)


def names_below(folder):
    return [path.relative_to(folder).as_posix() for path in files_below(folder)]


def test_the_files_of_a_folder_come_before_those_of_the_folders_in_it_by_their_names(tmp_path):
    for name in ("b", "a", "z/b", "z/a", "c/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert names_below(tmp_path) == ["a", "b", "c/x", "z/a", "z/b"]
    assert list(files_below(tmp_path / "a")) == [tmp_path / "a"]
    assert list(files_below(tmp_path / "nowhere")) == []


def test_what_a_link_leads_to_is_below_a_folder_too(tmp_path):
    (tmp_path / "elsewhere" / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere" / "sub" / "x").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "x").symlink_to(tmp_path / "elsewhere" / "sub" / "x")
    assert names_below(tmp_path / "data") == ["x", "train/sub/x"]


def test_a_link_that_leads_back_is_not_followed_for_ever(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "other").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "other").symlink_to(tmp_path / "a")
    assert names_below(tmp_path / "a") == ["x", "other/x"]


WITHOUT_DESCRIPTORS = """
import contextlib, os, resource, sys
from pathlib import Path
from raysm.contract.folders import files_below
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with contextlib.suppress(OSError):
    while True:
        os.open(os.devnull, os.O_RDONLY)
try:
    print(list(files_below(Path(sys.argv[1]))))
except OSError as error:
    print(error.strerror)
"""


def test_a_folder_that_cannot_be_read_for_want_of_descriptors_is_not_one_without_files(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "Too many open files\n"
