"""How busy an instance is: CPU, memory, network, disk and GPUs, looked at once a second.

What flows in is what the kernel counts under ``/proc`` and ``/sys``, and what NVIDIA's driver says; what flows out are
``Metric`` events, each the mean of the looks since the last one, and the means of the whole run. On SageMaker an
instance is a host of its own. Instances on this machine share its CPUs, memory and disks, and see them whole; only
those of kind ``namespace`` have a network of their own.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from raysm.bootstrap.resources import memory_limit
from raysm.contract.cgroups import memory_used
from raysm.contract.events import Metric
from raysm.workloads.announce import Announce
from raysm.workloads.training.measure.nvml import Gpu, Nvml, find_gpus

__all__ = ["Counters", "Usage", "read_counters", "usage_between"]

ROOT = Path("/")

INTERVAL_S = 1.0

ANNOUNCE_S = 10.0
"""A line a second and metric would bury the log of a job of many instances."""

SECTOR_BYTES = 512
"""The unit of ``/sys/block/*/stat``, whatever the disk's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """What the kernel has counted since the start, at one moment."""

    time_s: float
    """Of a monotonic clock."""
    cpu_busy: int
    """Ticks of all CPUs in which something ran."""
    cpu_all: int
    """Ticks of all CPUs."""
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


def read_counters(root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> Counters:
    """Read the counters below ``root``; what a system does not have is 0 (macOS has none of them)."""
    busy, every = _cpu(_text(root / "proc/stat"))
    received, sent = _network(_text(root / "proc/net/dev"))
    read, written = _disks(root / "sys/block")
    limit = memory_limit(root)
    return Counters(
        time_s=clock(),
        cpu_busy=busy,
        cpu_all=every,
        received_bytes=received,
        sent_bytes=sent,
        read_bytes=read,
        written_bytes=written,
        memory_bytes=_memory(root),
        memory_limit_bytes=limit,
    )


def usage_between(before: Counters, after: Counters, gpus: tuple[Gpu, ...] = ()) -> dict[str, float]:
    """Return the usage by the metrics' names: shares in percent, rates in bytes per second."""
    elapsed_s = max(1e-9, after.time_s - before.time_s)
    ticks = after.cpu_all - before.cpu_all
    # An interface or a disk that went away meanwhile takes along what it had counted.
    found = {
        "cpu_percent": 100.0 * (after.cpu_busy - before.cpu_busy) / ticks if ticks > 0 else 0.0,
        "memory_bytes": float(after.memory_bytes),
        "memory_percent": 100.0 * after.memory_bytes / max(1, after.memory_limit_bytes),
        "network_received_bytes_per_s": max(0, after.received_bytes - before.received_bytes) / elapsed_s,
        "network_sent_bytes_per_s": max(0, after.sent_bytes - before.sent_bytes) / elapsed_s,
        "disk_read_bytes_per_s": max(0, after.read_bytes - before.read_bytes) / elapsed_s,
        "disk_written_bytes_per_s": max(0, after.written_bytes - before.written_bytes) / elapsed_s,
    }
    if gpus:
        found["gpu_percent"] = sum(gpu.busy_percent for gpu in gpus) / len(gpus)
        found["gpu_memory_percent"] = 100.0 * max(gpu.memory_bytes / max(1, gpu.total_bytes) for gpu in gpus)
    return found


class Usage:
    """Looks once a second in a thread of its own, as long as its ``with`` block lasts."""

    def __init__(
        self,
        host: str,
        to: Announce,
        *,
        root: Path = ROOT,
        interval_s: float = INTERVAL_S,
        announce_s: float = ANNOUNCE_S,
    ) -> None:
        """Nothing happens yet; the metrics will be ``host``'s."""
        self._host, self._to, self._root = host, to, root
        self._interval_s, self._announce_s = interval_s, announce_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="raysm-usage", daemon=True)
        self._recent: list[Mapping[str, float]] = []
        self._sums: dict[str, float] = {}
        self._looks = 0
        self._nvml: Nvml | None = None

    def __enter__(self) -> "Usage":
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Announce what is not announced yet, and end the thread."""
        self._over.set()
        self._thread.join()

    def means(self) -> dict[str, float]:
        """Return the mean of each metric over all looks so far; empty before the first one."""
        # A copy first: the thread may add the next look meanwhile.
        return {name: total / self._looks for name, total in list(self._sums.items())} if self._looks else {}

    def _run(self) -> None:
        self._nvml = find_gpus()
        before = read_counters(self._root)
        announced_s = before.time_s
        while not self._over.wait(self._interval_s):
            # A figure that cannot be had, of a disk that is just gone, is not worth a job.
            with contextlib.suppress(OSError, ValueError):
                after = read_counters(self._root)
                self._add(usage_between(before, after, self._nvml.gpus() if self._nvml else ()))
                before = after
                if after.time_s - announced_s >= self._announce_s:
                    self._announce()
                    announced_s = after.time_s
        self._announce()

    def _add(self, look: Mapping[str, float]) -> None:
        self._recent.append(look)
        for name, value in look.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._looks += 1

    def _announce(self) -> None:
        recent, self._recent = self._recent, []
        for name in recent[-1] if recent else ():
            mean = sum(look.get(name, 0.0) for look in recent) / len(recent)
            self._to(Metric(name=name, value=round(mean, 2), host=self._host))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu(text: str) -> tuple[int, int]:
    """Return the busy and all ticks of ``/proc/stat``, proc_stat(5)."""
    fields = [int(field) for field in text.partition("\n")[0].split()[1:9]]
    # user nice system idle iowait irq softirq steal; guest time is in user already.
    return (sum(fields) - sum(fields[3:5]), sum(fields)) if len(fields) == 8 else (0, 0)


def _network(text: str) -> tuple[int, int]:
    received = sent = 0
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(":")
        fields = values.split()
        if name.strip() != "lo" and len(fields) >= 9:
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def _disks(folder: Path) -> tuple[int, int]:
    """Return the bytes read from and written to whole disks; loops, RAM disks and mapped ones are no own ones."""
    read = written = 0
    for disk in folder.glob("*"):
        fields = _text(disk / "stat").split()
        if (disk / "device").exists() and len(fields) >= 7:
            read += int(fields[2]) * SECTOR_BYTES
            written += int(fields[6]) * SECTOR_BYTES
    return read, written


def _memory(root: Path) -> int:
    """Return the memory in use: the cgroup's, less the file pages that the kernel takes back, or the machine's."""
    used = memory_used(root)
    if used is not None:
        return used
    values = dict(line.split(":", 1) for line in _text(root / "proc/meminfo").splitlines() if ":" in line)
    if "MemTotal" not in values or "MemAvailable" not in values:
        return 0
    return (int(values["MemTotal"].split()[0]) - int(values["MemAvailable"].split()[0])) * 1024
