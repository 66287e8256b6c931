"""What communication costs a step: one step in many is looked at through torch's profiler.

No clock in the loop can tell: collectives run beside the computing, in other threads or on other CUDA streams, in every
parallel mode elsewhere. What counts is the time in which something is sent or awaited and nothing is computed, as
Holistic Trace Analysis (github.com/facebookresearch/HolisticTraceAnalysis) splits a step: communication that is hidden
behind computing costs nothing. Waiting for a slower rank, and a pipeline's bubble, are part of it.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType, _profiler_enabled
from torch.profiler import ProfilerActivity, profile

__all__ = ["StepProfiler", "StepProfile", "is_due", "length", "merge", "subtract"]

FIRST_STEP = 8
"""Of a run: earlier ones still warm up."""

FACTOR = 3
"""Between one look and the next: so many times the steps so far. Looks grow as the logarithm of the steps, and every
rank looks at the same ones."""

CALLS = ("c10d::", "_c10d_functional::", "c10d_functional::")
"""How the operations that start, or await, communication begin on the CPU."""

COLLECTIVES = ("gloo:", "nccl", "mpi:", "ucc:")
"""How the communication itself is named: gloo's in its threads, NCCL's kernels on the device."""

CHATTER = (b"USDT:", b"ERROR: External init callback")
"""How the lines begin that torch's profiler writes to stderr at each start and end, and at the first in a thread."""

Interval = tuple[float, float]
"""Begin and end, microseconds."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What one look found."""

    wall_s: float
    """From the first to the last event of the step."""
    communication_s: float
    """In which something was communicated or awaited and nothing computed."""
    hidden_s: float
    """In which communication and computing went on together."""

    @property
    def share(self) -> float:
        """Return the part of the step that communication costs, 0 to 1."""
        return min(1.0, self.communication_s / self.wall_s) if self.wall_s > 0 else 0.0


def is_due(step: int) -> bool:
    """Return whether the ``step``-th step of this process, from 1, is to be looked at: 8, 24, 72, 216."""
    # A formula of the step alone: no rank has to tell another that it looks, and comparing needs the same step.
    while step > FIRST_STEP and step % FACTOR == 0:
        step //= FACTOR
    return step == FIRST_STEP


class StepProfiler:
    """Records one step. Costs about half of a step on a CPU."""

    @staticmethod
    def is_possible() -> bool:
        """Return whether nothing else is profiling."""
        # Torch allows one profiler at a time, and the user's own comes first.
        return not _profiler_enabled()

    def __init__(self, device: torch.device) -> None:
        """Begin."""
        self._device = device
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities)
        with _hushed():
            self._profile.start()

    def end(self) -> StepProfile:
        """End, and say what was found."""
        if self._device.type == "cuda":
            # Kernels that are still queued would be missing at the end of the step.
            torch.cuda.synchronize(self._device)
        with _hushed():
            self._profile.stop()
        events: list[Any] = list(self._profile.events() or ())  # type: ignore[no-untyped-call]
        # Where there are kernels they are the truth: the CPU has only queued them.
        on_device = [event for event in events if event.device_type == DeviceType.CUDA]
        return _split_kernels(on_device) if on_device else _split_calls(events)


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep the profiler's lines from stderr; what others write there meanwhile follows at the end."""
    with tempfile.TemporaryFile() as file:
        # By file descriptor: the profiler is C++, and knows nothing of sys.stderr.
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


def _split_kernels(events: Iterable[Any]) -> StepProfile:
    """On a GPU: NCCL's kernels beside all others."""
    communicating: list[Interval] = []
    computing: list[Interval] = []
    for event in events:
        mine = communicating if event.name.startswith(COLLECTIVES) else computing
        mine.append(_interval(event))
    return _profile(communicating, computing)


def _split_calls(events: Iterable[Any]) -> StepProfile:
    """On a CPU: what gloo's threads carry beside the operations of all threads that compute."""
    communicating: list[Interval] = []
    computing: list[Interval] = []
    for event in events:
        if event.name.startswith(COLLECTIVES):
            communicating.append(_interval(event))
        # From the outermost: a matrix product inside of a linear layer is counted once.
        elif event.cpu_parent is None:
            computing.extend(_computing(event))
    return _profile(communicating, computing)


def _computing(event: Any) -> list[Interval]:
    """Return where ``event`` computes: whole, or where calls of communication lie in it, its parts without them."""
    if event.name.startswith((*CALLS, *COLLECTIVES)):
        return []
    # Only operations of torch count as computing: Python between them does not occupy what is measured.
    if event.name.startswith("aten::") and not _communicates(event):
        return [_interval(event)]
    return [interval for child in event.cpu_children for interval in _computing(child)]


def _communicates(event: Any) -> bool:
    return any(child.name.startswith((*CALLS, *COLLECTIVES)) or _communicates(child) for child in event.cpu_children)


def _interval(event: Any) -> Interval:
    return event.time_range.start, event.time_range.end


def _profile(communicating: Sequence[Interval], computing: Sequence[Interval]) -> StepProfile:
    both = merge([*communicating, *computing])
    awaited, busy = merge(communicating), merge(computing)
    # What is hidden behind computing costs nothing.
    exposed_us = length(subtract(awaited, busy))
    wall_us = both[-1][1] - both[0][0] if both else 0.0
    return StepProfile(
        wall_s=wall_us / 1e6, communication_s=exposed_us / 1e6, hidden_s=(length(awaited) - exposed_us) / 1e6
    )


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals in order, those that overlap or touch as one."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def subtract(these: Sequence[Interval], those: Sequence[Interval]) -> list[Interval]:
    """Return the parts of ``these`` that lie in none of ``those``; both merged."""
    rest: list[Interval] = []
    first = 0
    for begin, end in these:
        while first < len(those) and those[first][1] <= begin:
            first += 1
        at = first
        while begin < end and at < len(those) and those[at][0] < end:
            if those[at][0] > begin:
                rest.append((begin, those[at][0]))
            begin = max(begin, those[at][1])
            at += 1
        if begin < end:
            rest.append((begin, end))
    return rest


def length(intervals: Iterable[Interval]) -> float:
    """Return their lengths' sum."""
    return sum(end - begin for begin, end in intervals)
