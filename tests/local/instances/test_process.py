"""Instances as processes, and their shares of the machine; test_instances has what every kind promises."""

import os
import socket
import subprocess
import sys
from concurrent.futures import Future

import pytest

from raysm.core.protocol import names
from raysm.errors import ForeignListener
from raysm.local.instances.base import Instance, Link, open_to_all
from raysm.local.instances.process import give, kill_marked
from raysm.local.instances.share import (
    DEFAULT_SHM_BYTES,
    SMALLEST_OBJECT_STORE,
    Machine,
    Share,
    memory_left,
    split,
)
from tests.support.another_user import needs_two_users, thief


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


@pytest.mark.namespace
def test_a_machine_without_loopback_is_a_sentence():
    code = "from raysm.local.instances.process import check_loopback; check_loopback()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "InvalidRequest" in done.stderr
    assert "ip link set lo up" in done.stderr


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
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == [
        "a.txt",
        "link",
        "link.txt",
    ]


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
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE
        )
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


GIB = 2**30


def machine(**fields):
    return Machine(
        **{"cpus": (0, 1, 2, 3, 4), "memory_bytes": 100 * GIB, "shm_bytes": 50 * GIB, **fields}
    )


def test_cpus_are_divided_without_overlap_where_there_are_enough():
    assert [(share.cpus, share.affinity) for share in split(machine(), 2)] == [
        (3, (0, 1, 2)),
        (2, (3, 4)),
    ]


def test_instances_that_would_be_confined_to_one_cpu_are_not_confined():
    assert [(share.cpus, share.affinity) for share in split(machine(), 3)] == [
        (2, None),
        (2, None),
        (1, None),
    ]


def test_memory_is_divided_after_the_machine_has_kept_some():
    assert {share.memory_bytes for share in split(machine(), 4)} == {20 * GIB}


def test_the_object_store_is_limited_by_the_memory_and_by_shm():
    assert split(machine(), 1)[0].object_store_bytes == 24 * GIB
    assert split(machine(shm_bytes=10 * GIB), 2)[0].object_store_bytes == 4 * GIB
    assert split(machine(shm_bytes=1), 1)[0].object_store_bytes == SMALLEST_OBJECT_STORE


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [((), [None, None]), (("a",), [("a",), ()]), (("a", "b"), [("a",), ("b",)])],
)
def test_gpus_are_divided_and_an_instance_without_one_sees_none(gpus, expected):
    assert [share.gpus for share in split(machine(gpus=gpus), 2)] == expected


@pytest.mark.parametrize(
    "files",
    [
        {
            "memory.max": f"{8 * GIB}\n",
            "memory.current": f"{7 * GIB}\n",
            "memory.stat": f"inactive_file {GIB}\n",
        },
        {
            "memory/memory.limit_in_bytes": f"{8 * GIB}",
            "memory/memory.usage_in_bytes": f"{7 * GIB}",
            "memory/memory.stat": f"total_inactive_file {GIB}",
        },
    ],
    ids=["v2", "v1"],
)
def test_memory_that_the_container_uses_already_is_not_there_but_what_it_can_give_back_is(
    tmp_path, files
):
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_left(100 * GIB, tmp_path) == 2 * GIB
    assert memory_left(GIB, tmp_path) == GIB


def test_shared_memory_is_half_of_an_instances_memory_and_an_engines_default_where_there_is_no_limit():
    assert Share(memory_bytes=10_000).shm_bytes == 5_000
    assert Share().shm_bytes == DEFAULT_SHM_BYTES


class Plain(Instance):
    def __init__(self):
        self.host, self.address, self.pid, self.exited = "algo-1", "127.0.0.1", 1, Future()
        self.signals = []

    def signal(self, number):
        self.signals.append(number)

    def enter(self, command, *, stdin, stdout):
        raise NotImplementedError

    def end(self):
        self.exited.set_result(137)


def test_every_folder_below_the_base_is_opened_and_neither_the_base_nor_a_file(tmp_path):
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "file").touch(mode=0o600)
    tmp_path.chmod(0o700)
    open_to_all(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*"))}
    assert modes == {tmp_path.name: 0o700, "model": 0o777, "deep": 0o777, "file": 0o600}


@needs_two_users
def test_a_port_that_another_user_has_is_not_taken_for_the_instances():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with thief(port) as other:
        other.await_port(port)
        with pytest.raises(ForeignListener):
            Plain().connect(port)
        assert other.end() == ""
