"""Tests of ``raysm.core.protocol.store``."""

import errno
import os
import stat
import subprocess
import sys

import pytest

from raysm.core.protocol.store import files_below, put, read_json, remove_unfinished, replacing
from raysm.errors import InvalidConfig


def names_below(folder):
    return [path.relative_to(folder).as_posix() for path in files_below(folder)]


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
from raysm.core.protocol.store import files_below
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
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        == "Too many open files\n"
    )


def half_written(path):
    with replacing(path) as beside, beside.open("w", encoding="ascii") as file:
        file.write("half of the n")
        file.flush()
        file.write("ë")


def test_the_error_of_a_full_disk_has_the_name_of_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left") as full, replacing(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(tmp_path / "a")


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    put(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        half_written(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_json_is_refused_by_name(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidConfig, match=message) as caught:
        read_json(tmp_path / "config.json")
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o007])
def test_a_file_that_is_no_secret_has_the_mode_of_any_other_new_file(tmp_path, umask):
    before = os.umask(umask)
    try:
        put(tmp_path / "a", "text")
        with replacing(tmp_path / "b") as beside:
            beside.write_text("text")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"] == [0o666 & ~umask] * 2


def test_what_a_killed_process_was_writing_is_removed_and_nothing_of_the_user_s(tmp_path):
    (tmp_path / "deep").mkdir()
    with replacing(tmp_path / "deep" / "model.pt") as beside:
        os.link(beside, tmp_path / "deep" / "left")
        left = beside.name
    (tmp_path / "deep" / "left").rename(tmp_path / "deep" / left)
    for name in ("download.partial", ".hidden.partial", "model.pt.0123abcd.partial"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model.pt"]
    assert len(list(tmp_path.iterdir())) == 4
    remove_unfinished(tmp_path / "nowhere")
