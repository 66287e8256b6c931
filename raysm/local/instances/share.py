"""Divide one machine among the instances of a job.

On SageMaker each instance is a machine. Here they share one, and without limits Ray would start as
many workers, and reserve as much memory, on each of them as the whole machine has.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from raysm.core.protocol import machine, names

T = TypeVar("T")

MEMORY_PART = 0.8
"""Part of the available memory that the instances share; the machine keeps the rest."""

OBJECT_STORE_PART = 0.3
"""Part of an instance's memory for Ray's object store: Ray's own default."""

CONFINED_FROM = 2
"""An instance is confined to its CPUs if it has at least this many. Ray's processes start all at
once: a cluster of three, confined to one CPU each, forms in 16 s instead of the 10 s on two shared
CPUs."""

SMALLEST_OBJECT_STORE = 80 * 2**20
"""Ray refuses to start with less than 75 MiB."""

DEFAULT_SHM_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    cpus: tuple[int, ...]
    """Numbers of the CPUs that this process may use."""
    memory_bytes: int
    shm_bytes: int
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The part of the machine that one instance gets; None is no limit."""

    cpus: int | None = None
    """Number of CPUs that Ray uses in the instance, at least 1."""
    affinity: tuple[int, ...] | None = None
    """CPUs that it is confined to; None leaves the choice to the scheduler."""
    memory_bytes: int | None = None
    object_store_bytes: int | None = None
    """Size of Ray's object store, part of the memory."""
    gpus: tuple[str, ...] | None = None

    @property
    def shm_bytes(self) -> int:
        """Size of an instance's own ``/dev/shm``: half its memory, as Linux gives a host."""
        return self.memory_bytes // 2 if self.memory_bytes else DEFAULT_SHM_BYTES

    def variables(self, *, object_store: bool = True) -> dict[str, str]:
        values = {
            names.CPUS: self.cpus,
            names.MEMORY_BYTES: self.memory_bytes,
            names.OBJECT_STORE_BYTES: self.object_store_bytes if object_store else None,
            "CUDA_VISIBLE_DEVICES": None if self.gpus is None else ",".join(self.gpus),
        }
        return {name: str(value) for name, value in values.items() if value is not None}


def measure() -> Machine:
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = sorted(affinity(0)) if affinity else range(os.cpu_count() or 1)
    available = memory_left(int(psutil.virtual_memory().available))
    shm = Path("/dev/shm")
    return Machine(
        cpus=tuple(cpus),
        memory_bytes=available,
        # On other systems than Linux, Ray keeps its objects in files of the temporary folder.
        shm_bytes=shutil.disk_usage(shm).free if shm.is_dir() else available,
        gpus=_gpus(),
    )


def memory_left(available: int, root: Path = machine.ROOT) -> int:
    """Return ``available``, or the bytes left of the container's memory limit.

    The cgroup of the container is below ``root``.
    """
    limit = machine.memory_limit(root)
    return (
        available
        if limit is None
        else max(0, min(available, limit - (machine.memory_used(root) or 0)))
    )


def _gpus() -> tuple[str, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    # By UUID: nvidia-smi numbers GPUs by their bus, CUDA numbers the fastest first.
    query = [tool, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()  # the tool without the driver
    return tuple(answer.stdout.split())


def split(machine: Machine, count: int) -> list[Share]:
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
