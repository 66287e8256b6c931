"""Decide whether the job has stalled.

It has stalled if no instance has output or work for ``stall_s`` seconds.

While lines come, nothing is looked at. Without a line, the head asks all instances for a snapshot
four times in ``stall_s``. Between two snapshots an instance shows life if

- a process of the user's code is new, used more than ``CPU_SHARE`` of a core, or in its main thread
  alone more than ``MAIN_CPU_SHARE``, could have run but got no core because of others, read and
  wrote more than ``IO_BYTES_PER_S``, or touched new memory more often than ``PAGE_FAULTS_PER_S``;
  its children count with it, idle workers of Ray do not,
- programs that outlived the process that started them used more than ``CPU_SHARE`` of a core, or
  read and wrote more than ``IO_BYTES_PER_S``,
- Ray's raylet started workers or installed packages, with more than ``RAY_CPU_SHARE`` of a core, or
  its workers without a task, which may still start, used more than ``CPU_SHARE`` of a core each,
- a kernel used the memory of a GPU, or
- its network carried more than ``NETWORK_BYTES_PER_S``, and a little for each instance of the job.

So a compilation, a download, an evaluation or a checkpoint is life, however long it takes, and so
is an endless loop. The CPU time of a process that waits is not: a rank may spin in a collective. It
waits if its stack was the same in both snapshots, and it stands in a collective, or the GPUs run
kernels that use no memory, as those of NCCL do while they wait.

Here is the rule alone, without side effects and clocks; ``head`` reads the snapshots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raysm.core.protocol.stacks import (
    ProcessStack,
    compare_calls,
    compare_collectives,
    find_collective,
    group,
    lines_of,
    sentence,
)
from raysm.core.request.durations import duration
from raysm.instance import lifecycle as life
from raysm.instance.stacks import Snapshot

LOOKS = 4
"""Snapshots in ``stall_s``."""
CPU_SHARE = 0.03
"""Of a core. An idle Ray worker uses 0.01: it answers heartbeats (Ray 2.60)."""
MAIN_CPU_SHARE = 0.01
"""Of a core, for the main thread alone while it runs the user's code. One that waits uses 0.004 if
it is looked at every 2.5 s: Ray's threads do not count, but writing the stacks does."""
RAY_CPU_SHARE = 0.1
"""Of a core, for the raylet and what it starts. Idle ones with their agents use 0.012."""
IO_BYTES_PER_S = 16 * 1024
"""An idle Ray worker reads and writes 700, its log included; what watches the ranks of a training
8,300."""
PAGE_FAULTS_PER_S = 256
"""A MiB a second of new or swapped memory in small pages; an idle process has fewer than 30."""
NETWORK_BYTES_PER_S = 64 * 1024
NETWORK_BYTES_PER_S_OF_EACH = 8 * 1024
"""In addition, for each instance of the job. Idle Ray and the control channel exchange 2,000 bytes
a second with the head for each of the others."""
MAX_LINES = 400
"""Of stacks in the log."""

Processes = dict[tuple[str, int], ProcessStack]


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    snapshots: tuple[Snapshot, ...]

    @property
    def processes(self) -> Processes:
        return {
            (process.host, process.pid): process
            for snapshot in self.snapshots
            for process in snapshot.processes
        }


class StallWatch:
    """What the head knows about signs of life; times are seconds of a monotonic clock."""

    def __init__(self, stall_s: float, now_s: float, *, takes_calls: bool = False) -> None:
        self._stall_s = stall_s
        self._takes_calls = takes_calls
        self._alive_s = now_s
        self._last: _Look | None = None
        self._stalled_s: float | None = None
        """Since when a reported stall lasts."""

    @property
    def next_look_s(self) -> float:
        """When to look next, unless a line comes first."""
        last_s = self._alive_s if self._last is None else max(self._alive_s, self._last.at_s)
        return last_s + self._stall_s / LOOKS

    def take_line(self, at_s: float) -> life.Recovered | None:
        """Take note of the time of the last line."""
        self._alive_s = max(self._alive_s, at_s)
        return self._recover()

    def take_look(
        self, snapshots: Iterable[Snapshot], now_s: float
    ) -> life.Stalled | life.Recovered | None:
        look = _Look(now_s, tuple(snapshots))
        last = self._last
        self._last = look
        # A look before the last line says nothing about the time after it.
        if last is not None and last.at_s >= self._alive_s and shows_work(last, look):
            self._alive_s = now_s
        if self._takes_calls and not any(map(_runs_call, look.processes.values())):
            # A session without a call waits for one.
            self._alive_s = now_s
        if recovered := self._recover():
            return recovered
        if self._stalled_s is not None or now_s - self._alive_s < self._stall_s:
            return None
        self._stalled_s = self._alive_s
        return _describe([*look.processes.values()], now_s - self._alive_s)

    def describe(self, snapshots: Iterable[Snapshot], now_s: float) -> life.Stalled:
        """Return a stall again, with what processes answered after it was found.

        The next look is compared with these snapshots, because what was used to read them is no
        sign of life.
        """
        self._last = _Look(now_s, tuple(snapshots))
        return _describe([*self._last.processes.values()], now_s - self._alive_s)

    def _recover(self) -> life.Recovered | None:
        if self._stalled_s is None or self._alive_s <= self._stalled_s:
            return None
        recovered = life.Recovered(self._alive_s - self._stalled_s)
        self._stalled_s = None
        return recovered


def shows_work(before: _Look, after: _Look) -> bool:
    """Return whether any process or instance worked between two looks."""
    seconds = max(1e-3, after.at_s - before.at_s)
    earlier = {snapshot.host: snapshot for snapshot in before.snapshots}
    network_limit = NETWORK_BYTES_PER_S + NETWORK_BYTES_PER_S_OF_EACH * len(after.snapshots)
    processes = before.processes
    for snapshot in after.snapshots:
        activity = snapshot.activity
        if activity.gpu_memory_percent > 0 or activity.is_idle_starved:
            return True
        known = earlier.get(snapshot.host)
        if known is not None:
            if activity.ray_cpu_s - known.activity.ray_cpu_s > RAY_CPU_SHARE * seconds:
                return True
            idle_s = activity.idle_cpu_s - known.activity.idle_cpu_s
            if idle_s > CPU_SHARE * seconds * activity.idle_workers:
                return True
            if activity.orphan_cpu_s - known.activity.orphan_cpu_s > CPU_SHARE * seconds:
                return True
            copied = activity.orphan_io_bytes - known.activity.orphan_io_bytes
            if copied > IO_BYTES_PER_S * seconds:
                return True
            carried = activity.network_bytes - known.activity.network_bytes
            if carried > network_limit * seconds:
                return True
        spins_on_gpu = activity.gpu_percent > 0
        for process in snapshot.processes:
            if _works(processes.get((process.host, process.pid)), process, seconds, spins_on_gpu):
                return True
    return False


def _works(
    before: ProcessStack | None, after: ProcessStack, seconds: float, spins_on_gpu: bool
) -> bool:
    # An instance that cannot answer, but is not lost, has other work.
    if before is None or after.pid == 0:
        return True
    if after.io_bytes - before.io_bytes > IO_BYTES_PER_S * seconds:
        return True
    if after.page_faults - before.page_faults > PAGE_FAULTS_PER_S * seconds:
        return True
    thread = after.thread
    runs_own = thread is not None and thread.is_main and thread.own_frame is not None
    main_s = after.main_cpu_s - before.main_cpu_s if runs_own else 0.0
    is_busy = after.cpu_s - before.cpu_s > CPU_SHARE * seconds or main_s > MAIN_CPU_SHARE * seconds
    if not is_busy and not after.is_starved:
        return False
    is_unchanged = after.is_still and thread == before.thread
    if thread is None or not is_unchanged:
        return True
    return not (find_collective(thread) or spins_on_gpu)


def _runs_own(process: ProcessStack) -> bool:
    return any(thread.own_frame is not None for thread in process.threads)


def _runs_call(process: ProcessStack) -> bool:
    # Calls and cells run in main threads; a thread that an earlier cell has left is none.
    return any(thread.is_main and thread.own_frame is not None for thread in process.threads)


def _describe(processes: Sequence[ProcessStack], quiet_s: float) -> life.Stalled:
    # Processes of raysm and Ray explain nothing where there are others.
    shown = [each for each in processes if each.problem or _runs_own(each)] or [*processes]
    # The first difference is part of the reason of a job that ends, and of its status.
    differing = [*compare_collectives(processes)]
    who = "; ".join([sentence(group(shown)), *differing[:1]])
    lines = [line for line in lines_of(group(processes)) if line]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = ["… raysm stacks shows all"]
    stacks = "\n".join([*differing[1:], *compare_calls(processes), *lines])
    return life.Stalled(f"no line and no work for {duration(quiet_s)}: {who}", stacks)
