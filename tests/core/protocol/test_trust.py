"""Which files and folders may be followed on a machine with other users."""

import contextlib
import os
import struct
import subprocess
import sys
import tempfile

import pytest

from raysm.core.client.settings import PROJECT_FILE, find_project_file
from raysm.core.protocol.home import home, private_folder
from raysm.core.protocol.trust import find_distrust
from raysm.errors import InvalidRequest
from tests.support.homes import with_variable
from tests.support.strangers import NOBODY, needs_two_users

UNKNOWN = 4_000_000
"""The number of no user and of no group."""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "project" / PROJECT_FILE
    path.parent.mkdir(mode=0o755)
    path.touch(mode=0o644)
    return path


def found(file):
    return find_project_file(file.parent, file.parent)


def test_a_project_file_of_this_user_is_found_however_many_may_read_it(file):
    assert found(file) == file


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_project_file_that_all_may_write_is_refused_with_the_command_that_closes_it(file, mode):
    file.chmod(mode)
    with pytest.raises(InvalidRequest) as refused:
        found(file)
    assert str(file) in refused.value.problem
    assert f"chmod go-w {file}" in refused.value.remedy
    assert f"--project-file {file}" in refused.value.remedy


def test_a_project_file_in_a_folder_that_all_may_write_is_refused_unless_the_folder_is_sticky(file):
    file.parent.chmod(0o777)
    with pytest.raises(InvalidRequest, match="all users may write"):
        found(file)
    file.parent.chmod(0o1777)
    assert found(file) == file


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="needs Linux")
@pytest.mark.parametrize(("mask", "is_refused"), [(6, True), (4, False)])
def test_a_project_file_is_refused_if_its_access_list_lets_another_user_write(
    file, mask, is_refused
):
    nobody_else = 0xFFFFFFFF
    # The owner, a named user, the owner's group, the mask, and others: setfacl -m u:65534:rw,m::rw
    entries = [(1, 6), (2, 6), (4, 4), (16, mask), (32, 4)]
    packed = [
        struct.pack("<HHI", tag, may, NOBODY if tag == 2 else nobody_else) for tag, may in entries
    ]
    try:
        os.setxattr(file, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(packed))
    except OSError:
        pytest.skip("this file system has no access lists")
    refusal = pytest.raises(InvalidRequest, match="write")
    with refusal if is_refused else contextlib.nullcontext():
        assert found(file) == file


@needs_two_users
@pytest.mark.parametrize("part", ["the file", "its folder"])
def test_a_project_file_of_another_user_is_refused(file, part):
    os.chown(file if part == "the file" else file.parent, NOBODY, NOBODY)
    file.parent.chmod(0o1777)
    with pytest.raises(InvalidRequest, match="belongs to"):
        found(file)


@needs_two_users
def test_a_link_that_another_user_has_put_there_is_refused_though_its_target_is_ours(file):
    ours = file.rename(file.parent.parent / "other.toml")
    file.parent.chmod(0o1777)
    file.symlink_to(ours)
    assert found(file) == file
    os.lchown(file, NOBODY, NOBODY)
    with pytest.raises(InvalidRequest, match="belongs to"):
        found(file)


@needs_two_users
def test_a_link_of_ours_to_another_users_file_is_refused(file):
    theirs = file.rename(file.parent.parent / "other.toml")
    os.chown(theirs, NOBODY, NOBODY)
    file.symlink_to(theirs)
    with pytest.raises(InvalidRequest, match=r"other\.toml belongs to"):
        found(file)


@needs_two_users
def test_a_group_that_may_write_is_trusted_if_it_is_its_users_own(file):
    file.chmod(0o664)
    assert find_distrust(file) is None
    os.chown(file, -1, NOBODY)
    assert find_distrust(file).command == f"chmod g-w {file}"
    file.chmod(0o644)
    assert find_distrust(file) is None


@needs_two_users
def test_a_group_that_the_system_does_not_know_is_that_of_the_user_with_its_number(file):
    os.chown(file, UNKNOWN, UNKNOWN)
    file.chmod(0o664)
    with with_variable("SUDO_UID", f"{UNKNOWN}"):
        assert find_distrust(file) is None
        os.chown(file, UNKNOWN, UNKNOWN + 1)
        assert find_distrust(file).command == f"chmod g-w {file}"


@needs_two_users
def test_root_trusts_the_files_of_the_user_who_called_sudo(file):
    os.chown(file, NOBODY, -1)
    assert find_distrust(file) is not None
    with with_variable("SUDO_UID", f"{NOBODY}"):
        assert find_distrust(file) is None


def test_a_home_that_all_may_write_is_refused_though_it_is_sticky(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    assert home(folder) == folder
    folder.chmod(0o1777)
    with pytest.raises(InvalidRequest) as refused:
        home(folder)
    assert str(folder) in refused.value.problem
    assert "RAYSM_HOME" in refused.value.remedy


@needs_two_users
def test_a_home_of_another_user_is_refused(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(InvalidRequest, match="belongs to"):
        home(folder)


def test_folders_of_a_home_that_were_open_to_readers_are_closed(tmp_path):
    root = tmp_path / "home"
    (root / "grids").mkdir(parents=True)
    root.chmod(0o755)
    (root / "grids").chmod(0o755)
    assert private_folder(root, "grids", "deep") == root / "grids" / "deep"
    modes = [
        path.stat().st_mode & 0o777 for path in (root, root / "grids", root / "grids" / "deep")
    ]
    assert modes == [0o700] * 3


# As root until all is imported: the other user need not be able to read this Python.
HOMELESS = """
import os, sys
from pathlib import Path
from raysm.core.protocol.home import private_folder
os.environ.pop("HOME", None)
os.setuid(int(sys.argv[2]))
print(private_folder(Path(sys.argv[1]), "grids").name)
"""


@needs_two_users
def test_a_home_can_be_used_by_a_user_who_has_no_home_folder():
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, UNKNOWN, UNKNOWN)
        command = [sys.executable, "-c", HOMELESS, folder, str(UNKNOWN)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.stdout.strip(), done.stderr) == ("grids", "")


def test_the_users_home_folder_stays_as_open_as_it_is_when_it_is_raysms_home_too(tmp_path):
    tmp_path.chmod(0o755)
    with with_variable("HOME", str(tmp_path)):
        assert private_folder(tmp_path, "grids").stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755
