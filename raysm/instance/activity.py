"""What the kernel and NVIDIA's driver count of this instance's work, from ``/proc`` and NVML.

``stall`` compares two readings. Everything here costs milliseconds, and needs no package.
"""

import contextlib
import ctypes
import functools
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from raysm.instance.children import descendants

RAYLET = "raylet"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """The work of a whole instance."""

    network_bytes: int = 0
    """Received and sent since the start, without loopback; 0 if other instances share the
    interfaces."""
    ray_cpu_s: float = 0.0
    """Processor seconds of Ray's raylet and of what it starts, without its workers: those that are
    not ready yet, and pip, which installs the packages of a runtime environment."""
    idle_workers: int = 0
    """Number of Ray's workers without a task; one that still starts is among them."""
    idle_cpu_s: float = 0.0
    """Their processor seconds."""
    is_idle_starved: bool = False
    """True if one of them could run, but got no core because others used them all."""
    orphan_cpu_s: float = 0.0
    """Processor seconds of programs that outlived the process that started them, and of what they
    start."""
    orphan_io_bytes: int = 0
    """Bytes that these have read and written."""
    gpu_percent: int = 0
    """Share of the last moment in which a kernel ran, on the busiest GPU."""
    gpu_memory_percent: int = 0
    """Share of that moment in which a kernel used the GPU's memory. A kernel of NCCL that waits
    for another rank runs, but uses none."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The work of a process since its start, with children that are not read by themselves."""

    cpu_s: float = 0.0
    io_bytes: int = 0
    """Read and written by system calls such as read and write, on disks, pipes and some sockets."""
    page_faults: int = 0
    """Of new memory, mapped files and memory that was swapped out."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.cpu_s + other.cpu_s,
            self.io_bytes + other.io_bytes,
            self.page_faults + other.page_faults,
        )


def read_activity(
    workers: Iterable[int] = (), idle: Collection[int] = (), *, has_own_network: bool
) -> Activity:
    """Return what this instance did since its start.

    Args:
        workers: The processes that are read by themselves.
        idle: Those of them that are Ray's workers without a task.
        has_own_network: Whether its network interfaces are its alone.
    """
    gpu_percent, gpu_memory_percent = read_gpus()
    orphans = _read_orphans(workers)
    return Activity(
        ray_cpu_s=_ray_cpu_s(workers),
        orphan_cpu_s=orphans.cpu_s,
        orphan_io_bytes=orphans.io_bytes,
        idle_workers=len(idle),
        idle_cpu_s=sum(usage.cpu_s for usage in read_usages(idle).values()),
        network_bytes=_network_bytes() if has_own_network else 0,
        gpu_percent=gpu_percent,
        gpu_memory_percent=gpu_memory_percent,
    )


def _ray_cpu_s(workers: Iterable[int]) -> float:
    raylets = [pid for pid in descendants(os.getpid()) if _name(pid) == RAYLET]
    usages = read_usages([*raylets, *workers])
    return sum(usages[pid].cpu_s for pid in raylets)


def _read_orphans(workers: Iterable[int]) -> Usage:
    """Return the usage of the programs that this process has adopted, as ``children`` says."""
    known = {*workers}
    own = os.getpid()
    orphans = [
        pid
        for pid, parent in _read_parents().items()
        if parent == own and pid not in known and not _runs_ray(pid)
    ]
    usages = read_usages([*orphans, *known])
    return sum((usages[pid] for pid in orphans), Usage())


def _runs_ray(pid: int) -> bool:
    return any(_name(each) == RAYLET for each in (pid, *descendants(pid)))


def _name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return ""


def read_usages(pids: Iterable[int]) -> dict[int, Usage]:
    """Return the usage of each process; that of other processes below it counts as its own."""
    parents = _read_parents()
    usages = dict.fromkeys(pids, Usage())
    for pid in parents:
        owner: int | None = pid
        while owner is not None and owner not in usages:
            owner = parents.get(owner)
        if owner is not None:
            usages[owner] += _usage(pid)
    return usages


def _usage(pid: int) -> Usage:
    ticks = io_bytes = page_faults = 0
    # It may have ended by now, or be another user's.
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _stat(pid)
        # User, system, and both of the children that have ended.
        ticks = sum(map(int, fields[11:15]))
        # Minor ones and major ones, each also of the children that have ended.
        page_faults = sum(map(int, fields[7:11]))
        with open(f"/proc/{pid}/io") as file:
            counts = dict(line.split(": ") for line in file)
        io_bytes = sum(
            int(counts[name]) for name in ("rchar", "wchar", "read_bytes", "write_bytes")
        )
    return Usage(ticks / TICKS_PER_S, io_bytes, page_faults)


def read_main_cpu_s(pid: int) -> float:
    """Return the processor seconds of a process's main thread, exact to less than a tick."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9
    return 0.0


def _stat(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _read_parents() -> Mapping[int, int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(name)] = int(_stat(int(name))[1])
    return parents


def _network_bytes() -> int:
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/net/dev") as file:
        for line in file.readlines()[2:]:
            name, _, counts = line.partition(":")
            if name.strip() != "lo":
                numbers = counts.split()
                total += int(numbers[0]) + int(numbers[8])
    return total


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@functools.cache
def _nvml() -> ctypes.CDLL | None:
    # ctypes, because nvidia-ml-py may be missing in the image.
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() == 0:
            return library
    return None


def read_gpus() -> tuple[int, int]:
    """Return the use of the busiest GPU and GPU memory, in percent; 0 without GPUs."""
    library = _nvml()
    if library is None:
        return 0, 0
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    busiest = memory = 0
    for index in range(count.value):
        device = ctypes.c_void_p()
        use = _Utilization()
        if (
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
            and library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(use)) == 0
        ):
            busiest = max(busiest, use.gpu)
            memory = max(memory, use.memory)
    return busiest, memory
