"""Where an instance has room for its own things: chosen by what can be written, what is free, and what is memory."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.bootstrap.environment import base_paths
from raysm.bootstrap.scratch import Disk, choose, look_at, settle_scratch
from raysm.contract import names


def disk(name, free_bytes=0, **fields):
    folder = Path(name)
    return Disk(folder=folder, scratch=folder / "own", size_bytes=100, free_bytes=free_bytes, **fields)


def test_the_disk_with_the_most_room_is_chosen_and_of_equal_ones_the_first():
    small, large, alike = disk("/opt/ml", 10), disk("/tmp", 90), disk("/other", 90)
    assert choose([small, large]) == large
    assert choose([large, alike]) == large
    assert choose([alike, large]) == alike


def test_of_two_places_of_one_device_the_first_is_chosen_though_somebody_deletes_between_the_looks():
    temp, base = disk("/tmp", 90, device="/dev/vda"), disk("/opt/ml", 91, device="/dev/vda")
    assert choose([temp, base]) == temp
    # File systems in memory are all called alike.
    small, large = (disk(name, gb, device="tmpfs", in_memory=True) for name, gb in (("/tmp", 1), ("/opt/ml", 9)))
    assert choose([small, large]) == large


def test_memory_is_chosen_only_where_there_is_no_disk():
    memory = disk("/tmp", 90, in_memory=True)
    assert choose([memory, disk("/opt/ml", 1)]) == disk("/opt/ml", 1)
    assert choose([memory, disk("/opt/ml", 1, obstacle="Permission denied")]) == memory


def test_a_folder_of_an_earlier_job_is_emptied_and_closed_to_others(tmp_path):
    own = tmp_path / "raysm"
    (own / "training").mkdir(parents=True)
    (own / "training" / "best.pt").write_text("of another job")
    seen = look_at(tmp_path, own)
    assert (seen.obstacle, list(own.iterdir())) == ("", [])
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert 0 < seen.free_bytes <= seen.size_bytes


def test_a_link_that_somebody_has_left_is_an_obstacle_and_is_not_followed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "data").touch()
    (tmp_path / "raysm").symlink_to(tmp_path / "theirs")
    assert "symbolic link" in look_at(tmp_path, tmp_path / "raysm").obstacle
    assert (tmp_path / "theirs" / "data").exists()


def test_the_device_is_that_of_the_innermost_mount_and_of_the_latest_at_one_place(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "overlay / overlay rw 0 0\n"
        f"/dev/nvme1n1 {tmp_path} ext4 rw 0 0\n"
        f"tmpfs {tmp_path}/a\\040b tmpfs rw 0 0\n"
        f"/dev/nvme2n1 {tmp_path} xfs rw 0 0\n"
    )
    (tmp_path / "a b").mkdir()
    inner = look_at(tmp_path / "a b", tmp_path / "a b" / "raysm", mounts)
    outer = look_at(tmp_path, tmp_path / "raysm", mounts)
    assert (inner.device, inner.in_memory) == ("tmpfs", True)
    assert (outer.device, outer.in_memory) == ("/dev/nvme2n1", False)
    assert look_at(tmp_path, tmp_path / "raysm", tmp_path / "none").device == ""


def test_an_instance_with_a_base_folder_of_its_own_stays_below_it_and_says_nothing(tmp_path, capfd):
    settled = settle_scratch({"SAGEMAKER_BASE_DIR": str(tmp_path), "HOME": "/home"})
    assert settled[names.SCRATCH] == str(tmp_path / "scratch")
    assert settled["HOME"] == "/home"
    assert base_paths(settled).scratch == tmp_path / "scratch"
    assert capfd.readouterr().err == ""


def test_where_the_base_folder_cannot_be_written_temporary_files_show_the_way(tmp_path, capfd):
    (tmp_path / "scratch").touch()
    settled = settle_scratch({"SAGEMAKER_BASE_DIR": str(tmp_path)})
    scratch = Path(settled[names.SCRATCH])
    try:
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
        assert f"what raysm writes for itself goes to {scratch}" in capfd.readouterr().err
    finally:
        scratch.rmdir()


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
    assert "/tmp has 0.7 of 0.7 GB free on volume; /opt/ml has 0.1 of 0.1 GB free on small" in log
    assert "what raysm writes for itself goes to /tmp/raysm" in log


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
