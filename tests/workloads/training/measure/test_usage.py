"""How busy an instance is."""

import queue
from dataclasses import replace

import pytest

from raysm.workloads.training.measure.nvml import Gpu
from raysm.workloads.training.measure.usage import Usage, read_counters, usage_between

MIB = 2**20


@pytest.fixture
def machine(tmp_path):
    """A machine that has a loopback, two interfaces, a disk and a loop device, and no cgroups."""
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text("cpu  100 10 50 800 40 5 5 0 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4096 kB\nMemFree: 10 kB\nMemAvailable: 1024 kB\n")
    (tmp_path / "proc/net/dev").write_text(
        "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
        "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
        "  eth0:1000 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n"
        "  eth1: 30 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n"
    )
    for name, sectors in (("sda", (8, 16)), ("loop0", (1000, 1000))):
        (tmp_path / "sys/block" / name).mkdir(parents=True)
        (tmp_path / "sys/block" / name / "stat").write_text(f" 1 0 {sectors[0]} 0 1 0 {sectors[1]} 0 0 0 0\n")
    (tmp_path / "sys/block/sda/device").mkdir()
    return tmp_path


def test_the_kernels_counters_are_read_without_loopback_and_loop_devices(machine):
    found = read_counters(machine, clock=lambda: 5.0)
    assert (found.cpu_busy, found.cpu_all) == (170, 1010)
    assert (found.received_bytes, found.sent_bytes) == (1030, 204)
    assert (found.read_bytes, found.written_bytes) == (8 * 512, 16 * 512)
    assert (found.memory_bytes, found.memory_limit_bytes) == (3 * MIB, 4 * MIB)
    assert found.time_s == 5.0


def test_a_containers_memory_is_its_own_without_what_the_kernel_takes_back(machine):
    group = machine / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text(f"{3 * MIB}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {MIB}\n")
    assert read_counters(machine).memory_bytes == 2 * MIB


def test_a_system_without_these_files_has_counted_nothing(tmp_path):
    found = read_counters(tmp_path)
    assert (found.cpu_all, found.sent_bytes, found.read_bytes, found.memory_bytes) == (0, 0, 0, 0)
    assert usage_between(found, replace(found, time_s=found.time_s + 1))["cpu_percent"] == 0


def test_usage_is_what_was_counted_between_two_moments(machine):
    before = read_counters(machine, clock=lambda: 0.0)
    after = replace(
        before,
        time_s=2.0,
        cpu_busy=before.cpu_busy + 150,
        cpu_all=before.cpu_all + 200,
        sent_bytes=before.sent_bytes + 500,
        written_bytes=before.written_bytes + 4096,
    )
    found = usage_between(before, after, (Gpu(80.0, 1, 4), Gpu(40.0, 3, 4)))
    assert found["cpu_percent"] == 75
    assert found["memory_percent"] == 75
    assert found["network_sent_bytes_per_s"] == 250
    assert found["network_received_bytes_per_s"] == 0
    assert found["disk_written_bytes_per_s"] == 2048
    assert (found["gpu_percent"], found["gpu_memory_percent"]) == (60, 75)


def test_an_interface_that_went_away_makes_no_rate_negative(machine):
    before = read_counters(machine, clock=lambda: 0.0)
    found = usage_between(before, replace(before, time_s=2.0, received_bytes=before.received_bytes - 100))
    assert found["network_received_bytes_per_s"] == 0


def test_it_is_announced_for_the_instance_and_ends_with_its_block(machine):
    came = queue.Queue()
    with Usage("algo-2", came.put, root=machine, interval_s=0.01, announce_s=0.02) as usage:
        first = came.get(timeout=20)
    assert first.host == "algo-2"
    assert usage.means()["memory_percent"] == 75
    names = {first.name} | {came.get_nowait().name for _ in range(came.qsize())}
    assert {"cpu_percent", "memory_bytes", "network_sent_bytes_per_s", "disk_read_bytes_per_s"} <= names


def test_a_second_of_looking_costs_a_thousandth_of_it():
    import time

    read_counters()
    begin_s = time.thread_time()
    for _ in range(20):
        read_counters()
    assert (time.thread_time() - begin_s) / 20 < 0.005  # 0.6 ms where nothing else runs
