"""Where an instance has room for its own things: chosen by what can be written, what is free, and what is memory."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.bootstrap import scratch
from raysm.bootstrap.environment import base_paths
from raysm.bootstrap.scratch import empty_scratch, private_token, settle_scratch
from raysm.contract import names
from raysm.contract.paths import Paths
from tests.support.pages import assert_printed, outputs


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "channel" / "token"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(0o644)
    return path


def test_a_token_that_a_download_made_readable_is_made_private_where_it_lies(token, tmp_path):
    assert private_token(token, Paths(tmp_path)) == token
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.namespace
def test_a_token_on_a_read_only_channel_is_copied_to_where_others_cannot_read(token, tmp_path):
    code = (
        "import sys; from pathlib import Path; from raysm.bootstrap.scratch import private_token; "
        "from raysm.contract.paths import Paths; print(private_token(Path(sys.argv[1]), Paths(Path(sys.argv[2]))))"
    )
    seal = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    inner = [sys.executable, "-c", code, str(token), str(tmp_path)]
    command = ["unshare", "--mount", "sh", "-c", seal, str(token.parent), *inner]
    found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    assert found.is_relative_to(tmp_path / "scratch")
    assert found.read_text() == "secret"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600


def test_a_folder_of_an_earlier_job_is_emptied_and_closed_to_others(tmp_path):
    own = tmp_path / "raysm"
    (own / "training").mkdir(parents=True)
    (own / "training" / "best.pt").write_text("of another job")
    empty_scratch(own)
    assert list(own.iterdir()) == []
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_a_link_that_somebody_has_left_is_an_obstacle_and_is_not_followed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "data").touch()
    (tmp_path / "raysm").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic link"):
        empty_scratch(tmp_path / "raysm")
    assert (tmp_path / "theirs" / "data").exists()


def test_memory_is_the_last_choice(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"overlay / overlay rw 0 0\ntmpfs {tmp_path}/a\\040b tmpfs rw 0 0\n")
    monkeypatch.setattr(scratch, "MOUNTS", mounts)
    monkeypatch.setattr(scratch, "DEFAULT_BASE", tmp_path / "ml")
    (tmp_path / "a b").mkdir()
    (tmp_path / "ml").mkdir()
    settled = settle_scratch({"SAGEMAKER_BASE_DIR": str(tmp_path / "ml")}, temp=tmp_path / "a b")
    assert settled[names.SCRATCH] == str(tmp_path / "ml" / "scratch")
    assert settled[names.RAY_TEMP_DIR] == str(tmp_path / "ml" / "scratch" / "ray")
    assert "TMPDIR" not in settled


def test_an_instance_with_a_base_folder_of_its_own_stays_below_it_and_says_nothing(tmp_path, capfd):
    settled = settle_scratch({"SAGEMAKER_BASE_DIR": str(tmp_path), "HOME": "/home"})
    assert settled[names.SCRATCH] == str(tmp_path / "scratch")
    assert settled["HOME"] == "/home"
    assert base_paths(settled).scratch == tmp_path / "scratch"
    assert capfd.readouterr().err == ""


CODE = """
from raysm.bootstrap.scratch import settle_scratch
from raysm.errors import InvalidConfig
try:
    told = settle_scratch({})
    print(*(f"{name}={value}" for name, value in sorted(told.items())))
except InvalidConfig as error:
    print(error)
"""


def in_a_container(mounts):
    """Return what the code prints, and its log, where ``/opt/ml`` and ``/tmp`` are the mounts that the shell makes."""
    # This Python and this tree may lie below /tmp, which is going to be another one.
    shell = (
        "mount -t tmpfs own /mnt && mkdir /mnt/python /mnt/tree && "
        'mount --bind "$PYTHON" /mnt/python && mount --bind "$TREE" /mnt/tree && '
        f'mount -t tmpfs own /opt && mkdir /opt/ml && {mounts} && exec "$@"'
    )
    python = Path("/mnt/python", Path(sys.executable).relative_to(sys.prefix))
    command = ["unshare", "--mount", "sh", "-c", shell, "sh", str(python), "-c", CODE]
    # Neither a place of this process's own nor the one where it stands is to be a place for temporary files.
    environ = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", names.SCRATCH)}
    environ |= {"PYTHON": sys.prefix, "TREE": str(Path(__file__).parents[2]), "PYTHONPATH": "/mnt/tree"}
    done = subprocess.run(command, env=environ, cwd="/proc", capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


LARGE_TMP = "mount -t tmpfs -o size=64m small /opt/ml && mount -t tmpfs -o size=640m volume /tmp"


@pytest.mark.namespace
def test_as_on_sagemaker_the_volume_at_tmp_is_taken_and_not_the_small_root():
    told, log = in_a_container(LARGE_TMP)
    assert told == "RAYSM_SCRATCH=/tmp/raysm"
    assert_printed(outputs("how-to/run-on-aws.md")[0], log)


@pytest.mark.namespace
def test_without_a_tmp_that_can_be_written_ray_and_temporary_files_follow_to_the_other_disk():
    told, log = in_a_container(f"{LARGE_TMP} && mount -o remount,ro /tmp")
    assert told == "RAYSM_RAY_TEMP_DIR=/opt/ml/scratch/ray RAYSM_SCRATCH=/opt/ml/scratch TMPDIR=/opt/ml/scratch"
    assert "/tmp cannot be written (Read-only file system)" in log


@pytest.mark.namespace
def test_a_container_in_which_nothing_can_be_written_is_told_in_one_sentence():
    # Python looks for temporary files in these, too.
    others = " && ".join(
        f"mount -t tmpfs -o ro none {path}" for path in ("/var/tmp", "/usr/tmp") if Path(path).is_dir()
    )
    told, _ = in_a_container(f"{LARGE_TMP} && mount -o remount,ro /tmp && mount -o remount,ro /opt/ml && {others}")
    assert told.startswith("/tmp cannot be written (Read-only file system) and /opt/ml cannot be written")
    assert "run the image as root, or mount one" in told
    assert "\n" not in told


@pytest.mark.namespace
def test_a_tmp_that_runs_no_programs_is_passed_over_because_packages_have_compiled_modules():
    told, _ = in_a_container(f"{LARGE_TMP} && mount -o remount,noexec /tmp")
    assert told == "RAYSM_RAY_TEMP_DIR=/opt/ml/scratch/ray RAYSM_SCRATCH=/opt/ml/scratch"
