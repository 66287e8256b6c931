"""Detect what this instance has within the container's limits.

That is CPUs, memory, GPUs, shared memory and EFA.

Everything is read below a root folder that is an argument, so that tests can use a fake tree for
any machine.
"""

import asyncio
import contextlib
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from raysm.core.protocol import machine
from raysm.core.protocol.machine import ROOT, cgroup_value, text_of
from raysm.instance.children import descendants
from raysm.instance.environment import CUDA_VISIBLE

MIN_OBJECT_STORE_BYTES = 80 * 2**20
"""Ray refuses an object store below 75 MiB."""
MAX_OBJECT_STORE_BYTES = 200 * 10**9
"""Ray's own maximum for the default size of an object store."""
OBJECT_STORE_SHARE = 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStore:
    bytes: int
    folder: Path | None
    """A folder on a disk instead of ``/dev/shm``; None is ``/dev/shm``."""
    warning: str | None = None


def count_cpus(root: Path = ROOT, affinity: int | None = None) -> int:
    if affinity is None:
        # macOS has no sched_getaffinity; all CPUs of the machine count there.
        allowed = getattr(os, "sched_getaffinity", None)
        affinity = len(allowed(0)) if allowed else os.cpu_count() or 1
    quota = _cpu_quota(root)
    return max(1, min(affinity, math.floor(quota))) if quota is not None else max(1, affinity)


def _cpu_quota(root: Path) -> float | None:
    text = cgroup_value(root, "cpu", "cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        period = period or "100000"
    else:
        # cgroup v1 writes -1 for 'no limit'.
        quota = cgroup_value(root, "cpu", "cpu.cfs_quota_us") or "-1"
        period = cgroup_value(root, "cpu", "cpu.cfs_period_us") or "0"
    try:
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except ValueError:  # "max"
        return None


def memory_limit(root: Path = ROOT) -> int:
    total = _machine_memory(root)
    limit = machine.memory_limit(root)
    return total if limit is None else min(total, limit)


def _machine_memory(root: Path) -> int:
    for line in (text_of(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def oom_kills(root: Path = ROOT) -> int | None:
    for name in ("memory.events", "memory.oom_control"):
        for line in (cgroup_value(root, "memory", name) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdigit():
                return int(value)
    return None


def count_gpus(environ: Mapping[str, str], smi: Callable[[], str] | None = None) -> int:
    """Return the GPUs that this instance may use: ``CUDA_VISIBLE_DEVICES`` decides if it is set."""
    visible = environ.get(CUDA_VISIBLE)
    if visible is not None:
        # CUDA reads the list up to the first invalid entry; -1 is the usual one.
        listed = [part.strip() for part in visible.split(",")]
        return next(
            (i for i, part in enumerate(listed) if part in ("", "-1", "none", "NoDevFiles")),
            len(listed),
        )
    lines = (smi or _run_nvidia_smi)().splitlines()
    return sum(line.startswith("GPU ") for line in lines)


def _run_nvidia_smi() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            [program, "--list-gpus"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def has_efa(root: Path = ROOT) -> bool:
    # /sys also shows devices of the machine that this container cannot use.
    passed_in = any((root / "dev/infiniband").glob("uverbs*"))
    devices = (root / "sys/class/infiniband").glob("*")
    return passed_in and any(_is_efa(device) for device in devices)


def _is_efa(device: Path) -> bool:
    vendor = text_of(device / "device/vendor")
    amazon = "0x1d0f"
    # Without the file, the name decides: efa_0, or rdmap… because rdma-core renames the devices.
    return vendor == amazon if vendor is not None else device.name.startswith(("efa", "rdmap"))


def plan_object_store(
    memory_bytes: int,
    shared_bytes: int,
    disk: Path,
    asked_bytes: int | None = None,
    disk_free_bytes: int | None = None,
) -> ObjectStore:
    """Fit Ray's object store into ``/dev/shm``, or place it on a disk if that is too small.

    The disk is that of the folder ``disk``.
    """
    intended = asked_bytes or max(MIN_OBJECT_STORE_BYTES, int(memory_bytes * OBJECT_STORE_SHARE))
    intended = max(
        MIN_OBJECT_STORE_BYTES, intended if asked_bytes else min(intended, MAX_OBJECT_STORE_BYTES)
    )
    # A tenth is left for small segments of Ray and NCCL.
    usable = int(shared_bytes * 0.9)
    if usable >= intended:
        return ObjectStore(bytes=intended, folder=None)
    # A requested size is kept, on a disk if necessary; the default size is reduced instead.
    if asked_bytes is None and usable >= MIN_OBJECT_STORE_BYTES:
        return ObjectStore(bytes=usable, folder=None)
    if disk_free_bytes is None:
        disk.mkdir(parents=True, exist_ok=True)
        disk_free_bytes = shutil.disk_usage(disk).free
    # Half, because Ray's logs and spilled objects use the same disk.
    size = max(MIN_OBJECT_STORE_BYTES, min(intended, disk_free_bytes // 2))
    warning = (
        f"/dev/shm has {shared_bytes / 2**20:.0f} MiB free, too few for an object store of "
        f"{intended / 2**20:.0f} MiB: Ray's object store of {size / 2**20:.0f} MiB lies on "
        f"the disk in {disk}, which is slower; in Docker give --shm-size"
    )
    return ObjectStore(bytes=size, folder=disk, warning=warning)


INTERVAL_S = 1.0
STATUS_BYTES = 8192


class PeakMemory:
    """Peak memory of this process and its descendants, sampled once a second.

    The sum contains the anonymous memory of every process, in which pages shared by a fork count
    for each process, and once the largest shared memory that one of them maps, which is Ray's
    object store. Pages of mapped files and the rest of the page cache do not count, because the
    kernel can reclaim them, so a mapped matrix costs nothing here. A peak of less than a second may
    be missed.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """The peak so far, in bytes; 0 if the system does not report it (macOS)."""

    def sample(self) -> None:
        with contextlib.suppress(Exception):
            self.bytes = max(self.bytes, used_bytes([os.getpid(), *descendants(os.getpid())]))

    async def run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(INTERVAL_S)


def used_bytes(processes: Iterable[int], root: Path = Path("/")) -> int:
    """Return the anonymous memory of ``processes`` and the largest shared memory of one."""
    private = 0
    shared = 0
    for process in processes:
        try:
            # Bytes, because the kernel cuts a process's name after 15 bytes, even inside a UTF-8
            # character.
            with open(f"{root}/proc/{process}/status", "rb", buffering=0) as file:
                status = file.read(STATUS_BYTES)
        except OSError:
            continue  # it has ended meanwhile
        private += _kib(status, b"\nRssAnon:") * 1024
        shared = max(shared, _kib(status, b"\nRssShmem:") * 1024)
    return private + shared


def _kib(status: bytes, name: bytes) -> int:
    value = status.partition(name)[2].split(None, 1)[:1]
    return int(value[0]) if value else 0
