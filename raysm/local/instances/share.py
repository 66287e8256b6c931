"""How one machine is divided among the instances of a job.

SageMaker's instances are machines of their own; here they share one, and each must believe in its part of it alone,
or Ray would start as many workers, and reserve as much memory, on each of them as the whole machine has.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Machine", "Share", "measure", "split"]

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Memory limits of a container, cgroup v2 and v1."""

MEMORY_PART = 0.8
"""Part of the available memory that instances may believe in; the rest is the machine's own."""

OBJECT_STORE_PART = 0.3
"""Part of an instance's memory that is Ray's object store; Ray's own default."""

SMALLEST_OBJECT_STORE = 80 * 2**20
"""Ray refuses to start with less than 75 MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What there is to divide."""

    cpus: tuple[int, ...]
    """Numbers of the CPUs that this process may use."""
    memory_bytes: int
    """Memory available now, within the container's limit."""
    shm_bytes: int
    """Room in ``/dev/shm`` now."""
    gpus: tuple[str, ...] = ()
    """Identifiers of the GPUs, as ``CUDA_VISIBLE_DEVICES`` takes them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one instance gets; None is no limit."""

    cpus: tuple[int, ...] | None = None
    """Numbers of its CPUs; shared with others where there are more instances than CPUs."""
    memory_bytes: int | None = None
    """Memory in all."""
    object_store_bytes: int | None = None
    """Ray's object store, within the memory."""
    gpus: tuple[str, ...] | None = None
    """Its GPUs; None where the machine has none."""


def measure() -> Machine:
    """Look at this machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = sorted(affinity(0)) if affinity else range(os.cpu_count() or 1)
    available = int(psutil.virtual_memory().available)
    for limit in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # absent, or "max"
            available = min(available, int(limit.read_text()))
    shm = Path("/dev/shm")
    return Machine(
        cpus=tuple(cpus),
        memory_bytes=available,
        # Elsewhere than on Linux, Ray keeps its objects in files of the temporary folder.
        shm_bytes=shutil.disk_usage(shm).free if shm.is_dir() else available,
        gpus=_gpus(),
    )


def _gpus() -> tuple[str, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()  # the tool without the driver: no GPU that anybody could use
    return tuple(answer.stdout.split())


def split(machine: Machine, count: int) -> list[Share]:
    """Divide ``machine`` into ``count`` shares; the first ones get what does not divide evenly."""
    memory = int(machine.memory_bytes * MEMORY_PART) // count
    store = min(int(memory * OBJECT_STORE_PART), int(machine.shm_bytes * MEMORY_PART) // count)
    return [
        Share(
            cpus=_part(machine.cpus, index, count) or (machine.cpus[index % len(machine.cpus)],),
            memory_bytes=memory,
            object_store_bytes=max(store, SMALLEST_OBJECT_STORE),
            gpus=tuple(_part(machine.gpus, index, count)) if machine.gpus else None,
        )
        for index in range(count)
    ]


def _part(items: Sequence[int] | Sequence[str], index: int, count: int) -> tuple:  # type: ignore[type-arg]
    size, rest = divmod(len(items), count)
    start = index * size + min(index, rest)
    return tuple(items[start : start + size + (index < rest)])
