"""Folders that are made below one that has to be there."""

import pytest

from raysm.contract.folders import make_folder


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
