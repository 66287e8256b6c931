"""How busy an instance is: CPU, memory, network, disks and GPUs, read once a second.

psutil and nvidia-ml-py read the counters. Instances on this machine report the machine's CPUs,
memory and disks; only instances of kind ``namespace`` have their own network.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from raysm.core.protocol.events import Metric
from raysm.core.protocol.machine import memory_limit, memory_used
from raysm.instance.work.report import EmitEvent

INTERVAL_S = 1.0
EMIT_USAGE_EVERY_S = 10.0
"""A line each second and metric would bury the log of a job of many instances."""

Counters = Mapping[str, float]


def read_counters() -> Counters:
    """Read the system's counters.

    A counter that the system lacks is 0: gVisor has none of disks, some containers none of
    networks.
    """
    # Imported here, because the package may be missing, and Ray's own copy of psutil is not
    # importable.
    import psutil

    def read(function: Callable[..., Any], **options: Any) -> Any:
        try:
            return function(**options)
        except (OSError, NotImplementedError):
            return None

    cpu = read(psutil.cpu_times)
    # The times of user and nice include the time of guests.
    seconds = (
        {} if cpu is None else {k: v for k, v in cpu._asdict().items() if not k.startswith("guest")}
    )
    # nowrap=False: else psutil remembers every interface and disk that there ever was, and locks
    # for it.
    networks = read(psutil.net_io_counters, pernic=True, nowrap=False) or {}
    disks = read(psutil.disk_io_counters, perdisk=True, nowrap=False) or {}
    outside = [io for name, io in networks.items() if name.rstrip("0123456789") != "lo"]
    # Partitions, LVM, RAID and loop devices have no such link; the disks below them count the same
    # bytes.
    whole = [io for name, io in disks.items() if (Path("/sys/block") / name / "device").exists()]
    machine = read(psutil.virtual_memory)
    total, available = (machine.total, machine.available) if machine is not None else (0, 0)
    used = memory_used()
    limit = memory_limit()
    return {
        "time_s": time.monotonic(),
        "cpu_busy_s": sum(seconds.values()) - seconds.get("idle", 0.0) - seconds.get("iowait", 0.0),
        "cpu_all_s": sum(seconds.values()),
        "network_received": sum(io.bytes_recv for io in outside),
        "network_sent": sum(io.bytes_sent for io in outside),
        "disk_read": sum(io.read_bytes for io in whole),
        "disk_written": sum(io.write_bytes for io in whole),
        # The container's own use, without reclaimable memory; its limit may be above the machine's
        # memory.
        "memory_bytes": total - available if used is None else used,
        "memory_limit_bytes": total if limit is None else min(total or limit, limit),
    }


class Gpus:
    """The GPUs of the machine, as nvidia-ml-py (imported as ``pynvml``) reports them."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]

    def usage(self) -> dict[str, float]:
        """Return the GPUs' mean use, and how full the fullest one's memory is, in percent."""
        # The driver's own mean of its last period: sampled here, kernels of a millisecond would be
        # missed.
        busy = [
            float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) for handle in self._handles
        ]
        memory = [self._nvml.nvmlDeviceGetMemoryInfo(handle) for handle in self._handles]
        if not busy:
            return {}
        # A mean would hide the GPU that is about to run out of memory.
        fullest = max(each.used / max(1, each.total) for each in memory)
        return {"gpu_percent": sum(busy) / len(busy), "gpu_memory_percent": 100.0 * fullest}

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def usage_between(before: Counters, after: Counters) -> dict[str, float]:
    elapsed_s = max(1e-9, after["time_s"] - before["time_s"])
    cpus_s = after["cpu_all_s"] - before["cpu_all_s"]
    usage = {
        "cpu_percent": 100.0 * (after["cpu_busy_s"] - before["cpu_busy_s"]) / cpus_s
        if cpus_s > 0
        else 0.0,
        "memory_bytes": float(after["memory_bytes"]),
        "memory_percent": 100.0 * after["memory_bytes"] / max(1, after["memory_limit_bytes"]),
    }
    for name in ("network_received", "network_sent", "disk_read", "disk_written"):
        # At least 0, because the counts of an interface or a disk that was removed are gone.
        usage[f"{name}_bytes_per_s"] = max(0.0, after[name] - before[name]) / elapsed_s
    return usage


class Usage:
    def __init__(
        self,
        host: str,
        emit_event: EmitEvent,
        say: Callable[[str], None],
        *,
        has_gpus: bool = False,
        read: Callable[[], Counters] = read_counters,
        open_gpus: Callable[[], Gpus] = Gpus,
        interval_s: float = INTERVAL_S,
        emit_every_s: float = EMIT_USAGE_EVERY_S,
    ) -> None:
        self._host = host
        self._emit_event = emit_event
        self._say = say
        self._has_gpus = has_gpus
        self._read = read
        self._open_gpus = open_gpus
        self._interval_s = interval_s
        self._emit_every_s = emit_every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="raysm-usage", daemon=True)
        self._recent: list[Mapping[str, float]] = []
        # The thread that trains calls ``means`` while the other one adds.
        self._adding = threading.Lock()
        self._sums: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> "Usage":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def means(self) -> dict[str, float]:
        with self._adding:
            return {name: total / self._counts[name] for name, total in self._sums.items()}

    def _run(self) -> None:
        try:
            before = self._read()
        except ImportError as error:
            self._say(
                f"how busy {self._host} is stays unknown: {error}; add psutil to the requirements"
            )
            return
        gpus = None
        try:
            gpus = self._open_gpus()
        except Exception as reason:  # of the package, which may be missing, or of NVIDIA's driver
            self._say_unknown(reason)
        emitted_s = before["time_s"]
        while not self._over.wait(self._interval_s):
            # A figure that cannot be read, for example of a disk that was just removed, must not
            # end a job.
            with contextlib.suppress(OSError, ValueError):
                after = self._read()
                usage = usage_between(before, after)
                if gpus is not None:
                    try:
                        usage |= gpus.usage()
                    except Exception as reason:
                        self._say_unknown(reason)
                with self._adding:
                    self._sums.update(usage)
                    self._counts.update(usage.keys())
                self._recent.append(usage)
                before = after
            if before["time_s"] - emitted_s >= self._emit_every_s:
                self._emit()
                emitted_s = before["time_s"]
        if gpus is not None:
            gpus.close()
        self._emit()

    def _say_unknown(self, reason: Exception) -> None:
        if self._has_gpus:
            self._say(
                f"how busy the GPUs of {self._host} are stays unknown: {reason}; nvidia-ml-py "
                "reads it"
            )
        self._has_gpus = False  # once is enough

    def _emit(self) -> None:
        recent = self._recent
        self._recent = []
        for name in dict.fromkeys(name for usage in recent for name in usage):
            values = [usage[name] for usage in recent if name in usage]
            self._emit_event(
                Metric(name=name, value=round(sum(values) / len(values), 2), host=self._host)
            )
