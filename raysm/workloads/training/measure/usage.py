"""How busy an instance is: CPU, memory, network, disk and GPUs, looked at once a second.

What flows in is what the system counts and what NVIDIA's driver says; what flows out are ``Metric`` events, each the
mean of the looks since the last one, and the means of the whole run. On SageMaker an instance is a host of its own.
Instances on this machine share its CPUs, memory and disks, and see them whole; only those of kind ``namespace`` have a
network of their own.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from raysm.contract.events import Metric
from raysm.errors import MissingDependency
from raysm.workloads.progress import EmitEvent
from raysm.workloads.training.measure.counters import Counters, system_counters
from raysm.workloads.training.measure.gpus import Gpu, Gpus, GpusUnknown, open_gpus

__all__ = ["Sources", "Usage", "usage_between"]

INTERVAL_S = 1.0

EMIT_EVERY_S = 10.0
"""A line a second and metric would bury the log of a job of many instances."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where the figures come from."""

    read: Callable[[], Counters] = system_counters
    """Reads the system's counters."""
    open_gpus: Callable[[], Gpus] = open_gpus
    """Opens the driver's library."""


def usage_between(before: Counters, after: Counters, gpus: tuple[Gpu, ...] = ()) -> dict[str, float]:
    """Return the usage by the metrics' names: shares in percent, rates in bytes per second."""
    elapsed_s = max(1e-9, after.time_s - before.time_s)
    cpus_s = after.cpu_all_s - before.cpu_all_s
    # An interface or a disk that went away meanwhile takes along what it had counted.
    usage = {
        "cpu_percent": 100.0 * (after.cpu_busy_s - before.cpu_busy_s) / cpus_s if cpus_s > 0 else 0.0,
        "memory_bytes": float(after.memory_bytes),
        "memory_percent": 100.0 * after.memory_bytes / max(1, after.memory_limit_bytes),
        "network_received_bytes_per_s": max(0, after.received_bytes - before.received_bytes) / elapsed_s,
        "network_sent_bytes_per_s": max(0, after.sent_bytes - before.sent_bytes) / elapsed_s,
        "disk_read_bytes_per_s": max(0, after.read_bytes - before.read_bytes) / elapsed_s,
        "disk_written_bytes_per_s": max(0, after.written_bytes - before.written_bytes) / elapsed_s,
    }
    if gpus:
        usage["gpu_percent"] = sum(gpu.busy_percent for gpu in gpus) / len(gpus)
        # Of memory the fullest one: a mean would hide the GPU that is about to have none left.
        usage["gpu_memory_percent"] = 100.0 * max(gpu.memory_bytes / max(1, gpu.total_bytes) for gpu in gpus)
    return usage


class Usage:
    """Looks once a second in a thread of its own, as long as its ``with`` block lasts."""

    def __init__(
        self,
        host: str,
        emit_event: EmitEvent,
        say: Callable[[str], None],
        *,
        has_gpus: bool = False,
        sources: Sources | None = None,
        interval_s: float = INTERVAL_S,
        emit_every_s: float = EMIT_EVERY_S,
    ) -> None:
        """Nothing happens yet.

        Args:
            host: The instance that the metrics are about.
            emit_event: Takes the metrics.
            say: Takes a line for people: what stays unknown, and why, once.
            has_gpus: Whether the instance has some: where it has none, nothing of them is unknown.
            sources: Where the figures come from; None is this machine.
            interval_s: Between two looks.
            emit_every_s: Between two announcements, at least.
        """
        self._host, self._to, self._say, self._has_gpus = host, emit_event, say, has_gpus
        self._sources = sources or Sources()
        self._interval_s, self._emit_every_s = interval_s, emit_every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="raysm-usage", daemon=True)
        self._recent: list[Mapping[str, float]] = []
        # ``means`` is asked by the thread that trains, while the other one adds.
        self._adding = threading.Lock()
        self._sums: dict[str, float] = {}
        self._looks: Counter[str] = Counter()

    def __enter__(self) -> "Usage":
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Announce what is not announced yet, and end the thread."""
        # The wait between two looks ends at once: a job must not last a second longer for its figures.
        self._over.set()
        self._thread.join()

    def means(self) -> dict[str, float]:
        """Return the mean of each metric over the looks that had it so far; empty before the first one."""
        with self._adding:
            return {name: total / self._looks[name] for name, total in self._sums.items()}

    def _run(self) -> None:
        try:
            before = self._sources.read()
        except MissingDependency as error:
            self._say(f"how busy {self._host} is stays unknown: {error}")
            return
        with ExitStack() as until_end:
            gpus = self._open_gpus(until_end)
            emitted_s = before.time_s
            while not self._over.wait(self._interval_s):
                # A figure that cannot be had, of a disk that is just gone, is not worth a job.
                with contextlib.suppress(OSError, ValueError):
                    after = self._sources.read()
                    self._add(usage_between(before, after, self._look(gpus)))
                    before = after
                if before.time_s - emitted_s >= self._emit_every_s:
                    self._emit()
                    emitted_s = before.time_s
        self._emit()

    def _open_gpus(self, until_end: ExitStack) -> Gpus | None:
        """Open the driver's library for as long as the block lasts; None where nobody says anything of GPUs."""
        try:
            gpus = self._sources.open_gpus()
        except GpusUnknown as reason:
            self._say_unknown(reason)
            return None
        until_end.callback(gpus.close)
        return gpus

    def _look(self, gpus: Gpus | None) -> tuple[Gpu, ...]:
        """Look at the GPUs; a look that fails is left out, and the next one may succeed."""
        try:
            return gpus.look() if gpus else ()
        except GpusUnknown as reason:
            self._say_unknown(reason)
            return ()

    def _say_unknown(self, reason: GpusUnknown) -> None:
        if self._has_gpus:
            self._say(f"how busy the GPUs of {self._host} are stays unknown: {reason}")
        self._has_gpus = False  # once is enough

    def _add(self, look: Mapping[str, float]) -> None:
        self._recent.append(look)
        with self._adding:
            for name, value in look.items():
                self._sums[name] = self._sums.get(name, 0.0) + value
                self._looks[name] += 1

    def _emit(self) -> None:
        """Announce the means of the looks since the last time; a metric counts where a look had it."""
        recent, self._recent = self._recent, []
        for name in dict.fromkeys(name for look in recent for name in look):
            values = [look[name] for look in recent if name in look]
            self._to(Metric(name=name, value=round(sum(values) / len(values), 2), host=self._host))
