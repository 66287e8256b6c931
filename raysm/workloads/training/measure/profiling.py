"""What communication costs a step: a few steps are recorded by torch's profiler.

No clock in the loop can tell: collectives run beside the computing, in other threads or on other CUDA streams. What
counts is the time in which something is sent or awaited and nothing is computed, as Holistic Trace Analysis
(github.com/facebookresearch/HolisticTraceAnalysis) splits a step. Waiting for a slower rank, and a pipeline's bubble,
are part of it.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType, _profiler_enabled
from torch.profiler import ProfilerActivity, profile

__all__ = ["FIRST_STEP", "StepProfile", "StepProfiler", "is_due", "union_length"]

FIRST_STEP = 8
"""The first step that is profiled: earlier ones warm up."""

FACTOR = 3
"""Between one profiled step and the next; profiles grow as the logarithm of the steps."""

CALLS = ("c10d::", "_c10d_functional::", "c10d_functional::")
"""Prefixes of the operations that start, or await, communication on the CPU."""

COLLECTIVES = ("gloo:", "nccl", "mpi:", "ucc:")
"""Prefixes of the communication itself: in gloo's threads, or as NCCL's kernels on the device."""

CHATTER = (b"USDT:", b"ERROR: External init callback")
"""Prefixes of lines that torch's profiler writes to stderr at each start and end."""

Interval = tuple[float, float]
"""Begin and end, microseconds."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """The seconds of one step, and those of them in which ranks communicated or waited and computed nothing."""

    wall_s: float
    communication_s: float

    @property
    def share(self) -> float:
        """Return the part of the step that communication costs, 0 to 1."""
        return min(1.0, self.communication_s / self.wall_s) if self.wall_s > 0 else 0.0


def is_due(step: int) -> bool:
    """Return whether to profile the ``step``-th step of this process, from 1: 8, 24, 72, 216, alike on all ranks."""
    while step > FIRST_STEP and step % FACTOR == 0:
        step //= FACTOR
    return step == FIRST_STEP


class StepProfiler:
    """Records one step. Costs about half of a step on a CPU."""

    @staticmethod
    def is_possible() -> bool:
        """Return whether nothing else is profiling: torch allows one profiler, and the user's own comes first."""
        return not _profiler_enabled()

    def __init__(self, device: torch.device) -> None:
        """Begin."""
        self._device = device
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self._profile = profile(activities=activities)
        with _hushed():
            self._profile.start()

    def end(self) -> StepProfile:
        """End, and return what was found."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # kernels that are still queued would be missing
        with _hushed():
            self._profile.stop()
        events: list[Any] = list(self._profile.events() or ())  # type: ignore[no-untyped-call]
        # The CPU has only queued the kernels of a GPU.
        on_device = [event for event in events if event.device_type == DeviceType.CUDA]
        communicating = [_interval(each) for each in on_device or events if each.name.startswith(COLLECTIVES)]
        if on_device:
            computing = [_interval(each) for each in on_device if not each.name.startswith(COLLECTIVES)]
        else:
            # From the outermost: a matrix product inside of a linear layer is counted once.
            computing = [found for each in events if each.cpu_parent is None for found in _computing(each)]
        both = [*communicating, *computing]
        wall_us = max(end for _, end in both) - min(begin for begin, _ in both) if both else 0.0
        # Communication that is hidden behind computing costs nothing.
        exposed_us = union_length(both) - union_length(computing)
        return StepProfile(wall_s=wall_us / 1e6, communication_s=exposed_us / 1e6)


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep the profiler's lines from stderr; what others write there meanwhile follows at the end."""
    with tempfile.TemporaryFile() as file:
        # By file descriptor: the profiler is C++ and does not write to sys.stderr.
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            for line in file:
                if not line.startswith(CHATTER):
                    os.write(2, line)


def _computing(event: Any) -> list[Interval]:
    """Return where an event on the CPU computes: whole, or in parts around the calls of communication in it."""
    if event.name.startswith((*CALLS, *COLLECTIVES)):
        return []
    # Only operations of torch count as computing, not the Python between them.
    if event.name.startswith("aten::") and not _communicates(event):
        return [_interval(event)]
    return [interval for child in event.cpu_children for interval in _computing(child)]


def _communicates(event: Any) -> bool:
    return any(child.name.startswith((*CALLS, *COLLECTIVES)) or _communicates(child) for child in event.cpu_children)


def _interval(event: Any) -> Interval:
    return event.time_range.start, event.time_range.end


def union_length(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    length, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length
