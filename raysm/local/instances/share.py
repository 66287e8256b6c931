"""Divide one machine among the instances of a job.

On SageMaker each instance is a machine. Here they share one, and without limits Ray would start as many workers, and
reserve as much memory, on each of them as the whole machine has.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from raysm.contract import machine

__all__ = ["Machine", "Share", "measure", "memory_left", "split"]

T = TypeVar("T")

MEMORY_PART = 0.8
"""Part of the available memory that instances may believe in; the rest is the machine's own."""

OBJECT_STORE_PART = 0.3
"""Part of an instance's memory that is Ray's object store; Ray's own default."""

CONFINED_FROM = 2
"""CPUs of its own from which on an instance is confined to them. Ray's processes start all at once: on one CPU each,
a cluster of three forms in 16 s instead of 10 s on two CPUs that all of them may use."""

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


DEFAULT_SHM_BYTES = 64 * 2**20
"""What a container engine gives where nobody asks for more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one instance gets; None is no limit."""

    cpus: int | None = None
    """How many CPUs it may believe in, at least 1."""
    affinity: tuple[int, ...] | None = None
    """Numbers of the CPUs that it is confined to; None leaves that to the scheduler."""
    memory_bytes: int | None = None
    """Memory in all."""
    object_store_bytes: int | None = None
    """Ray's object store, within the memory."""
    gpus: tuple[str, ...] | None = None
    """Its GPUs; None where the machine has none."""

    @property
    def shm_bytes(self) -> int:
        """Size of ``/dev/shm``, where the instance has its own: half its memory, as Linux gives a host."""
        return self.memory_bytes // 2 if self.memory_bytes else DEFAULT_SHM_BYTES


def measure() -> Machine:
    """Look at this machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = sorted(affinity(0)) if affinity else range(os.cpu_count() or 1)
    available = memory_left(int(psutil.virtual_memory().available))
    shm = Path("/dev/shm")
    return Machine(
        cpus=tuple(cpus),
        memory_bytes=available,
        # Elsewhere than on Linux, Ray keeps its objects in files of the temporary folder.
        shm_bytes=shutil.disk_usage(shm).free if shm.is_dir() else available,
        gpus=_gpus(),
    )


def memory_left(available: int, root: Path = machine.ROOT) -> int:
    """Return the bytes of ``available`` that the container has not used yet; ``root`` is where its cgroup is seen."""
    limit = machine.memory_limit(root)
    return available if limit is None else max(0, min(available, limit - (machine.memory_used(root) or 0)))


def _gpus() -> tuple[str, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    # By UUID: nvidia-smi numbers GPUs by their bus, CUDA from the fastest on.
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
            cpus=max(1, len(cpus)),
            affinity=cpus if len(machine.cpus) // count >= CONFINED_FROM else None,
            memory_bytes=memory,
            object_store_bytes=max(store, SMALLEST_OBJECT_STORE),
            gpus=_part(machine.gpus, index, count) if machine.gpus else None,
        )
        for index, cpus in enumerate(_part(machine.cpus, index, count) for index in range(count))
    ]


def _part(items: tuple[T, ...], index: int, count: int) -> tuple[T, ...]:
    size, rest = divmod(len(items), count)
    start = index * size + min(index, rest)
    return items[start : start + size + (index < rest)]
