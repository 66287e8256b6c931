"""An instance runs nothing of a payload that is not the one that was sent, and says which file is wrong."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from raysm.contract.seal import DIGESTS, START, Seal, digests_of, verify
from raysm.errors import InvalidPayload

SEAL = Seal(start=hashlib.sha256(b"print('begun')").hexdigest(), digests="1" * 64)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "payload"
    (folder / "source").mkdir(parents=True)
    (folder / START).write_bytes(b"print('begun')")
    (folder / "source" / "user.py").write_bytes(b"one")
    (folder / DIGESTS).write_text(json.dumps(digests_of(folder)))
    return folder


def run(folder):
    # The test's own Python, in place of the one that an image has first on its path.
    _, *arguments = SEAL.command(folder, folder.parent / "failure")
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name",
    [
        "source/__pycache__/user.cpython-311.pyc",
        ".hidden/user.py",
        "source/sitecustomize.py",
        "user.cpython-311-x86_64-linux-gnu.so",
    ],
)
def test_every_file_that_is_not_listed_is_refused(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"")
    with pytest.raises(InvalidPayload, match=re.escape(f"{name!r} is not listed in digests.json: it was added")):
        verify(folder)


def test_a_file_that_became_a_link_or_a_pipe_is_refused(folder):
    user = folder / "source" / "user.py"
    user.rename(folder.parent / "user.py")
    user.symlink_to(folder.parent / "user.py")
    with pytest.raises(InvalidPayload, match="'source/user.py' does not match"):
        verify(folder)
    user.unlink()
    os.mkfifo(user)
    with pytest.raises(InvalidPayload, match="'source/user.py' does not match"):
        verify(folder)


def test_a_link_that_is_listed_must_still_lead_to_the_same_place(folder):
    (folder / "code").symlink_to("source")
    (folder / DIGESTS).write_text(json.dumps(digests_of(folder)))
    verify(folder)
    (folder / "code").unlink()
    (folder / "code").symlink_to("/tmp")
    with pytest.raises(InvalidPayload, match="'code' does not match"):
        verify(folder)


def test_the_command_runs_the_start_that_was_sent(folder):
    assert run(folder).stdout == "begun\n"


def test_the_command_runs_no_other_start_and_says_so_in_the_failure_file(folder):
    (folder / START).write_bytes(b"print('stolen')")
    done = run(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert (folder.parent / "failure").read_text() == f"{folder / START} is not the one that was sent"


def test_empty_files_that_the_download_left_out_are_made_again(folder):
    (folder / "source" / "package").mkdir()
    (folder / "source" / "package" / "__init__.py").touch()
    (folder / DIGESTS).write_text(json.dumps(digests_of(folder)))
    shutil.rmtree(folder / "source" / "package")
    assert "source/package/__init__.py" in verify(folder)
    assert (folder / "source" / "package" / "__init__.py").read_bytes() == b""
