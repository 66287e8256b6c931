"""Folders that a dead owner leaves are swept, and no others."""

import os
import subprocess
import sys

import pytest

from raysm.local.scratch import PREFIX, Scratch, sweep

OWNER = """
import sys
from pathlib import Path
from raysm.local.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / "folder").mkdir()
(scratch.path / "link").symlink_to(sys.argv[2])
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    arguments = [sys.executable, "-c", OWNER, str(tmp_path), str(tmp_path / "precious")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_it_is_there_while_it_is_open_and_gone_after(tmp_path):
    with Scratch(tmp_path) as scratch:
        (scratch.path / "file").write_text("x")
        assert scratch.path.parent == tmp_path
        assert scratch.path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []
    scratch.close()


def test_the_folder_of_a_living_owner_is_not_swept(tmp_path, owner):
    path = owner.stdout.readline().strip()
    assert sweep(tmp_path) == []
    assert os.path.isdir(path)


def test_the_folder_of_a_killed_owner_is_swept_without_following_its_links(tmp_path, owner):
    path = owner.stdout.readline().strip()
    owner.kill()
    owner.wait()
    with Scratch(tmp_path):
        assert not os.path.exists(path)
    assert (tmp_path / "precious" / "file").read_text() == "kept"


def test_other_folders_and_links_with_our_prefix_are_not_swept(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    (tmp_path / f"{PREFIX}file").write_text("x")
    (tmp_path / f"{PREFIX}notes").mkdir()
    (tmp_path / f"{PREFIX}2024-thesis").mkdir()
    assert sweep(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 5
