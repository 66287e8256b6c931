"""What a system has counted, by a psutil that a test makes up, and by the real one."""

import time
from collections import namedtuple
from types import SimpleNamespace

import psutil

from raysm.workloads.training.measure.counters import read_counters, system_counters

MIB = 2**20

CpuTimes = namedtuple("CpuTimes", "user nice system idle iowait irq softirq steal guest guest_nice")


def nothing(**options):
    raise NotImplementedError("no such file")


def machine(interfaces=None, disks=None, **others):
    """Return what behaves as psutil does on a machine of 4 MiB, 3 of them in use."""
    system = {
        "cpu_times": lambda: CpuTimes(100, 10, 50, 800, 40, 5, 5, 0, 7, 0),
        "virtual_memory": lambda: SimpleNamespace(total=4 * MIB, available=MIB),
        "net_io_counters": lambda **options: {
            name: SimpleNamespace(bytes_recv=received, bytes_sent=sent)
            for name, (received, sent) in (interfaces or {}).items()
        },
        "disk_io_counters": lambda **options: {
            name: SimpleNamespace(read_bytes=read, write_bytes=written)
            for name, (read, written) in (disks or {}).items()
        },
    }
    return SimpleNamespace(**(system | others))


def test_what_is_counted_is_that_of_the_machine_itself(tmp_path):
    interfaces = {"lo": (999, 999), "eth0": (1000, 200), "eth1": (30, 4), "lo0": (5, 5)}
    counters = read_counters(machine(interfaces), tmp_path, clock=lambda: 5.0)
    assert (counters.cpu_busy_s, counters.cpu_all_s) == (170, 1010)  # guests are in user already
    assert (counters.received_bytes, counters.sent_bytes) == (1030, 204)
    assert (counters.memory_bytes, counters.memory_limit_bytes) == (3 * MIB, 4 * MIB)
    assert counters.time_s == 5.0


def test_bytes_of_partitions_volumes_and_loops_are_not_counted_again(tmp_path):
    names = ["sda", "sda1", "sda15", "nvme0n1", "nvme0n1p1", "mmcblk0", "mmcblk0p2", "dm-0", "md127", "loop3", "zram0"]
    counters = read_counters(machine(disks={name: (8, 16) for name in names}), tmp_path)
    assert (counters.read_bytes, counters.written_bytes) == (3 * 8, 3 * 16)


def test_twelve_disks_are_not_the_partitions_of_two(tmp_path):
    counters = read_counters(
        machine(disks={name: (1, 1) for name in ("xvda", "xvdb", "nvme1n1", "nvme11n1")}), tmp_path
    )
    assert counters.read_bytes == 4


def test_a_containers_memory_is_its_own_without_what_the_kernel_takes_back(tmp_path):
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text(f"{3 * MIB}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {MIB}\n")
    (group / "memory.max").write_text(f"{3 * MIB}\n")
    counters = read_counters(machine(), tmp_path)
    assert (counters.memory_bytes, counters.memory_limit_bytes) == (2 * MIB, 3 * MIB)


def test_what_a_system_does_not_count_is_0(tmp_path):
    bare = machine(cpu_times=nothing, net_io_counters=nothing, disk_io_counters=nothing, virtual_memory=nothing)
    counters = read_counters(bare, tmp_path)
    assert (counters.cpu_all_s, counters.sent_bytes, counters.read_bytes, counters.memory_bytes) == (0, 0, 0, 0)


def test_the_real_ones_grow():
    before = system_counters()
    sum(range(10**6))
    after = system_counters()
    assert after.time_s > before.time_s
    assert after.cpu_all_s >= before.cpu_all_s > 0
    assert 0 < after.memory_bytes <= after.memory_limit_bytes <= psutil.virtual_memory().total


def test_a_second_of_looking_costs_a_thousandth_of_it():
    system_counters()
    begin_s = time.thread_time()
    for _ in range(20):
        system_counters()
    assert (time.thread_time() - begin_s) / 20 < 0.005  # its own CPU time: about 1 ms, load or not
