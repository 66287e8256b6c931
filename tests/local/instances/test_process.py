"""What instances as processes are given; what every kind of instance promises is tried in test_instances."""

import os
import subprocess
import sys

import pytest

from raysm.contract import names
from raysm.local.instances.base import Link
from raysm.local.instances.process import give, kill_marked
from raysm.local.instances.share import Share


def test_a_share_is_told_by_what_it_limits_alone():
    assert Share().variables() == {}
    share = Share(cpus=2, memory_bytes=5 << 30, object_store_bytes=1 << 30, gpus=("0", "GPU-7"))
    assert share.variables() == {
        names.CPUS: "2",
        names.MEMORY_BYTES: str(5 << 30),
        names.OBJECT_STORE_BYTES: str(1 << 30),
        "CUDA_VISIBLE_DEVICES": "0,GPU-7",
    }
    assert names.OBJECT_STORE_BYTES not in share.variables(object_store=False)
    # None of them is not the same as no word of them: Ray would take all.
    assert Share(gpus=()).variables() == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    (folder / "link.txt").symlink_to("a.txt")
    (folder / "link").symlink_to("sub")
    return folder


def test_a_folder_is_given_as_folders_of_links_to_each_file(source, tmp_path):
    target = tmp_path / "target"
    give(Link(source=source, target=target), within=tmp_path)
    assert (target / "sub").is_dir()
    assert not (target / "sub").is_symlink()
    assert (target / "link.txt").read_text() == "a"
    assert (target / "link" / "b.txt").read_text() == "b"
    # What is made, removed or renamed there is the instance's own.
    (target / "a.txt").unlink()
    (target / "sub" / "b.txt").rename(target / "c.txt")
    (target / "sub" / "new.txt").write_text("new")
    assert (source / "a.txt").read_text() == "a"
    assert sorted(path.name for path in (source / "sub").iterdir()) == ["b.txt"]


def test_the_jobs_own_folder_is_not_given_where_it_lies_below(source, tmp_path):
    give(Link(source=source, target=tmp_path / "target"), within=tmp_path, but=source / "sub")
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["a.txt", "link", "link.txt"]


@pytest.mark.parametrize("name", ["a.txt", "sub"])
def test_an_instance_that_is_gone_does_not_come_back_with_what_it_is_given(source, tmp_path, name):
    gone = tmp_path / "gone"
    with pytest.raises(FileNotFoundError):
        give(Link(source=source / name, target=gone / "channel" / name), within=gone)
    assert not gone.exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_what_bears_the_marks_of_an_instance_is_killed_and_nobody_else(tmp_path):
    base = tmp_path / "ml"
    sleep = [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(600)"]

    def started(command, environment):
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE)
        process.stdout.readline()
        return process

    marked = [started(sleep, {names.BASE_DIR: str(base)}) for _ in range(2)]
    other = started(sleep, {names.BASE_DIR: f"{base}2"})
    try:
        kill_marked(base)
        assert [process.wait(60) for process in marked] == [-9, -9]
        assert other.poll() is None
    finally:
        for process in (*marked, other):
            process.kill()
            process.wait()
            process.stdout.close()
