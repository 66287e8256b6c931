"""What the system has counted since its start: CPU time, memory, network, disks, read by psutil.

What flows in is psutil, or whatever behaves like it, and this process's control group; what flows out are ``Counters``.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from raysm.contract import machine
from raysm.errors import MissingDependency

__all__ = ["Counters", "read_counters", "system_counters"]

LOOPBACK = re.compile(r"lo\d*")

# An LVM or RAID volume's bytes are counted again by the disks below it; loops and RAM disks are no disks at all.
VIRTUAL_DISK = re.compile(r"(loop|ram|zram|dm-|md|nbd|sr|fd)\d*")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """What was counted since the start, at one moment."""

    time_s: float
    """Of a monotonic clock."""
    cpu_busy_s: float
    """Seconds of all CPUs in which something ran."""
    cpu_all_s: float
    """Seconds of all CPUs."""
    received_bytes: int
    """On all interfaces but loopback."""
    sent_bytes: int
    """On all interfaces but loopback."""
    read_bytes: int
    """From all disks."""
    written_bytes: int
    """To all disks."""
    memory_bytes: int
    """In use now, without what the kernel can take back."""
    memory_limit_bytes: int
    """That may be used."""


def system_counters() -> Counters:
    """Read the counters of this system.

    Raises:
        MissingDependency: psutil is not installed.
    """
    try:
        # Ray has a psutil of its own, below a folder that only Ray looks into.
        import psutil
    except ImportError as error:
        raise MissingDependency("psutil is not installed; add it to the requirements") from error
    return read_counters(psutil)


def read_counters(system: Any, root: Path = machine.ROOT, clock: Callable[[], float] = time.monotonic) -> Counters:
    """Read the counters; what a system does not count is 0 (gVisor has no disks, some containers no network).

    Args:
        system: The module ``psutil``.
        root: Below it is the control group.
        clock: Returns seconds of a monotonic clock.
    """
    busy_s, every_s = _cpu(system)
    # nowrap=False: psutil would else remember every interface and disk that was ever there, and lock for it.
    interfaces: Mapping[str, Any] = _counted(lambda: system.net_io_counters(pernic=True, nowrap=False), {})
    disks: Mapping[str, Any] = _counted(lambda: system.disk_io_counters(perdisk=True, nowrap=False), {})
    outside = [io for name, io in interfaces.items() if not LOOPBACK.fullmatch(name)]
    whole = [io for name, io in disks.items() if _is_disk(name, disks)]
    used_bytes, limit_bytes = _memory(system, root)
    return Counters(
        time_s=clock(),
        cpu_busy_s=busy_s,
        cpu_all_s=every_s,
        received_bytes=sum(io.bytes_recv for io in outside),
        sent_bytes=sum(io.bytes_sent for io in outside),
        read_bytes=sum(io.read_bytes for io in whole),
        written_bytes=sum(io.write_bytes for io in whole),
        memory_bytes=used_bytes,
        memory_limit_bytes=limit_bytes,
    )


def _counted(read: Callable[[], T], nothing: T) -> T:
    """Return what was counted; ``nothing`` where the system has no such file."""
    try:
        return read()
    except (OSError, NotImplementedError):
        return nothing


def _cpu(system: Any) -> tuple[float, float]:
    """Return the busy and all seconds of all CPUs."""
    seconds: dict[str, float] = _counted(lambda: system.cpu_times()._asdict(), {})
    # The time of guests is in that of user and nice already.
    every_s = sum(value for name, value in seconds.items() if not name.startswith("guest"))
    return every_s - seconds.get("idle", 0.0) - seconds.get("iowait", 0.0), every_s


def _is_disk(name: str, names: Collection[str]) -> bool:
    """Whether it is a whole disk of the machine: bytes of a partition (sda1, nvme0n1p1) are its disk's too."""
    is_partition = any(re.fullmatch(rf"{re.escape(disk)}p?\d+", name) for disk in names)
    return not is_partition and not VIRTUAL_DISK.fullmatch(name)


def _memory(system: Any, root: Path) -> tuple[int, int]:
    """Return the bytes in use and those that may be: the control group's where it has a limit, or counts."""
    machine = _counted(system.virtual_memory, None)
    total, available = (int(machine.total), int(machine.available)) if machine is not None else (0, 0)
    used, limit = machine.memory_used(root), machine.memory_limit(root)
    # A group's limit may be above what the machine has.
    return total - available if used is None else used, total if limit is None else min(total or limit, limit)
