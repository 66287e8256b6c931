"""Read the Python stacks of this instance's processes, twice, to see which stand still.

Each process of raysm's registers faulthandler for a signal (``raysm.core.protocol.stack_signal``).
It needs no ptrace and no package.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import platform
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from raysm.core.protocol.control_line import PART
from raysm.core.protocol.stack_signal import SIGNAL, find_file
from raysm.core.protocol.stacks import APART_S, ProcessStack, Thread, pack, parse, unpack
from raysm.instance.activity import Activity, read_activity, read_main_cpu_s, read_usages
from raysm.instance.answers import ANSWER_S, Answers
from raysm.instance.children import Children, descendants
from raysm.instance.control import LEAN, Message, StacksPart, StacksWanted, Wanted, encode
from raysm.instance.native_frames import NATIVE_S, add_native_frames
from raysm.instance.own_code import mark_own_code

WRITE_S = 2.0
"""Seconds that a process has to write its stacks; a stopped one writes none."""
POLL_S = 0.01
QUIET_POLLS = 3
"""Polls without growth after which a file is complete."""
IDLE = "ray::IDLE"
"""The title of a Ray worker without a task."""
MAX_PROCESSES = 1000
THREAD_S = 0.1
"""Seconds that a thread has to write its stack; one without Python writes none."""
THREAD_POLL_S = 0.002
READERS = 8
"""Processes whose other threads are read at the same time."""
BUSY_SHARE = 0.03
"""Of a core."""
TGKILL = {"x86_64": 234, "aarch64": 131}
"""The system call that sends a signal to one thread. The C libraries of old images have no function
for it."""

PAUSED = "waiting for a signal"
RUNNABLE_SHARE = 0.9
"""Of the time between two samples in which a busy thread runs or waits for a core. An idle one that
wakes up 100 times a second does less, even if it waits long each time."""
STOPPED = {"T": "stopped by a signal (SIGSTOP)", "t": "stopped by a debugger"}


@dataclass(frozen=True, slots=True)
class _Sample:
    text: str
    cpu_s: float
    state: str
    at_s: float
    runnable_s: Mapping[str, float]
    """Seconds that each thread has run, or waited for a core, since its start."""


def read_stacks(
    host: str, apart_s: float = APART_S, *, answers: bool = False
) -> list[ProcessStack]:
    """Return the stacks of all busy Python processes below this one. Blocks for two samples.

    Args:
        host: This instance's.
        apart_s: Seconds between the samples.
        answers: Also read all threads, the last collectives, and coroutines that wait. Otherwise
            other threads than the main one are read where that is busy and runs no code of the
            user, as in an actor.
    """
    readable = (
        (pid, file)
        for pid, file in _find_files().items()
        if _title(pid) != IDLE and _catches_signal(pid)
    )
    files = dict(itertools.islice(readable, MAX_PROCESSES))
    first = _sample({pid: found[0] for pid, found in files.items()})
    began_s = time.monotonic()
    asked = Answers(files if answers else ())
    time.sleep(apart_s)
    second = _sample({pid: found[0] for pid, found in files.items()})
    seconds = time.monotonic() - began_s
    until_s = began_s + apart_s + ANSWER_S
    calls = asked.collectives(until_s)
    coroutines = asked.coroutines(until_s)
    usages = read_usages(files)
    described = {
        pid: _describe(host, pid, files[pid][1], first[pid], second[pid], seconds)
        for pid in files
        if pid in first and pid in second
    }
    others = _read_other_threads(
        {
            pid: files[pid][0]
            for pid, process in described.items()
            # One that is stopped, or that did not answer, would take all the time.
            if not process.problem
            and (answers or (process.busy > BUSY_SHARE and not _runs_own(process)))
        }
    )
    return [
        replace(
            process,
            threads=(
                *process.threads,
                *mark_own_code((*others.get(pid, ()), *coroutines.get(pid, ())), pid),
            ),
            cpu_s=usages[pid].cpu_s,
            main_cpu_s=read_main_cpu_s(pid),
            io_bytes=usages[pid].io_bytes,
            page_faults=usages[pid].page_faults,
            collectives=calls.get(pid),
        )
        for pid, process in described.items()
    ]


def _find_files() -> dict[int, tuple[int, str]]:
    """Return the file and the role of each process below this one that has them, idle ones too."""
    return {pid: file for pid in descendants(os.getpid()) if (file := find_file(pid))}


def _describe(
    host: str, pid: int, role: str, first: _Sample, second: _Sample, seconds: float
) -> ProcessStack:
    process = ProcessStack(host=host, pid=pid, role=_role(pid, role))
    if second.state in STOPPED:
        return replace(process, problem=STOPPED[second.state])
    if not second.text and _is_paused(pid):
        return replace(process, problem=PAUSED)
    if not second.text:
        return replace(process, problem=f"not answering (state {second.state})")
    threads = _main_thread(second)
    return replace(
        process,
        threads=mark_own_code(threads, pid),
        is_still=threads == _main_thread(first),
        busy=max(0.0, second.cpu_s - first.cpu_s) / seconds,
        is_starved=_is_starved(first.runnable_s, second.runnable_s, second.at_s - first.at_s),
    )


def _main_thread(sample: _Sample) -> tuple[Thread, ...]:
    return tuple(replace(thread, is_main=True) for thread in parse(sample.text)[:1])


def _runs_own(process: ProcessStack) -> bool:
    return any(thread.own_frame is not None for thread in process.threads)


def _is_starved(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> bool:
    return any(
        runnable_s - before[thread] >= RUNNABLE_SHARE * seconds
        for thread, runnable_s in after.items()
        if thread in before
    )


def _runnable_s(pid: int) -> dict[str, float]:
    """Return the seconds that each thread has run or waited for a core.

    The result is empty on a machine with free cores, where the seconds say nothing and take time to
    read.
    """
    threads: dict[str, float] = {}
    if os.getloadavg()[0] <= (os.cpu_count() or 1):
        return threads
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"/proc/{pid}/task/{thread}/schedstat") as file,
            ):
                ran_ns, waited_ns, _ = map(int, file.read().split())
                threads[thread] = (ran_ns + waited_ns) / 1e9
    return threads


def _role(pid: int, role: str) -> str:
    """Return a process's role; torchrun's agents give their ranks in a variable."""
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{pid}/environ", "rb") as file:
            for word in file.read().split(b"\0"):
                if role == "script" and word.startswith(b"RANK="):
                    return f"rank {int(word[5:])}"
    title = _title(pid)
    if title.startswith("ray::") and role == "worker":
        return title.removeprefix("ray::")
    return role or "process"


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().partition(b"\0")[0].decode(errors="replace").strip()
    return ""


def _catches_signal(pid: int) -> bool:
    """Return whether the signal would not end a process.

    The process may have replaced itself by another program.
    """
    return _has_signal(f"/proc/{pid}", "SigCgt")


def _has_signal(folder: str, field: str) -> bool:
    """Return whether a field of a process's or thread's status has the signal of this module."""
    with contextlib.suppress(OSError, ValueError):
        with open(f"{folder}/status") as file:
            for line in file:
                if line.startswith(f"{field}:"):
                    return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _is_paused(pid: int, thread: int | None = None) -> bool:
    """Return whether a thread waits for any signal, as ``signal.pause`` does.

    The signal of this module would end such a wait. Without ``thread`` it is the main thread.
    """
    folder = f"/proc/{pid}/task/{thread or pid}"
    with contextlib.suppress(OSError), open(f"{folder}/wchan") as file:
        return re.search(r"sys_pause|sigsuspend", file.read()) is not None
    return False


def _signal_thread(pid: int, thread: int) -> None:
    """Send the signal to one thread.

    Raises:
        OSError: The thread has ended.
    """
    number = TGKILL[platform.machine()]
    if ctypes.CDLL(None, use_errno=True).syscall(number, pid, thread, SIGNAL) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _read_other_threads(files: Mapping[int, int]) -> dict[int, tuple[Thread, ...]]:
    """Return the stacks of all threads but the main one, by pid; ``files`` has descriptors."""
    if not files:
        return {}
    until_s = time.monotonic() + WRITE_S
    with ThreadPoolExecutor(READERS) as pool:
        texts = pool.map(lambda pid: _read_threads(pid, files[pid], until_s), files)
        return dict(zip(files, map(parse, texts), strict=True))


def _read_threads(pid: int, file: int, until_s: float) -> str:
    path = f"/proc/{pid}/fd/{file}"
    with contextlib.suppress(OSError, ValueError):
        os.truncate(path, 0)
        for name in os.listdir(f"/proc/{pid}/task"):
            thread = int(name)
            if thread == pid or _is_paused(pid, thread):
                continue
            if time.monotonic() > until_s or not _catches_signal(pid):
                break
            # A thread may end at any time.
            with contextlib.suppress(OSError):
                _ask_thread(pid, thread, path)
        with open(path, "rb") as content:
            return content.read().decode(errors="replace")
    return ""


def _ask_thread(pid: int, thread: int, path: str) -> None:
    """Let a thread append its stack to the file, and wait until it has done so.

    Threads take turns, because faulthandler writes nothing while it writes another stack.
    """
    folder = f"/proc/{pid}/task/{thread}"
    if _has_signal(folder, "SigBlk"):
        return
    _signal_thread(pid, thread)
    until_s = time.monotonic() + THREAD_S
    size = -1
    while time.monotonic() < until_s:
        time.sleep(THREAD_POLL_S)
        if _has_signal(folder, "SigPnd"):
            continue
        now = os.stat(path).st_size
        if now == size:
            break
        size = now


def _sample(files: dict[int, int]) -> dict[int, _Sample]:
    """Return a sample of each process that still exists, by pid; ``files`` has descriptors."""
    waiting: dict[int, tuple[int, int]] = {}
    for pid, file in files.items():
        with contextlib.suppress(OSError):
            os.truncate(f"/proc/{pid}/fd/{file}", 0)
            if _catches_signal(pid) and not _is_paused(pid):
                _signal_thread(pid, pid)
                waiting[pid] = (0, 0)
    until_s = time.monotonic() + WRITE_S
    while waiting and time.monotonic() < until_s:
        time.sleep(POLL_S)
        for pid, (size, quiet) in list(waiting.items()):
            try:
                now = os.stat(f"/proc/{pid}/fd/{files[pid]}").st_size
            except OSError:
                del waiting[pid]
                continue
            waiting[pid] = (now, quiet + 1 if now == size and now > 0 else 0)
            if waiting[pid][1] >= QUIET_POLLS:
                del waiting[pid]
    samples = {}
    for pid, file in files.items():
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/fd/{file}", "rb") as content:
                text = content.read().decode(errors="replace")
            with open(f"/proc/{pid}/stat", "rb") as content:
                fields = content.read().rpartition(b")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            cpu_s = ticks / os.sysconf("SC_CLK_TCK")
            samples[pid] = _Sample(
                text, cpu_s, fields[0].decode(), time.monotonic(), _runnable_s(pid)
            )
    return samples


# -- all instances


SNAPSHOT_S = 5.0
"""Seconds that the workers have to answer; a slower one is named, and not waited for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The processes of one instance, and its work as a whole, at one moment."""

    host: str
    processes: tuple[ProcessStack, ...]
    activity: Activity = Activity()


def read_snapshot(host: str, *, has_own_network: bool, answers: bool = False) -> Snapshot:
    """Return a snapshot of this instance. Blocks for two samples of its stacks."""
    pids = [*_find_files()]
    idle = [pid for pid in pids if _title(pid) == IDLE]
    before_s, before = time.monotonic(), [_runnable_s(pid) for pid in idle]
    processes = tuple(read_stacks(host, answers=answers))
    seconds = time.monotonic() - before_s
    # A worker has no task, and so this title, until its actor is made.
    is_starved = any(
        _is_starved(runnable_s, _runnable_s(pid), seconds)
        for pid, runnable_s in zip(idle, before, strict=True)
    )
    activity = read_activity(pids, idle, has_own_network=has_own_network)
    return Snapshot(
        host=host,
        processes=processes,
        activity=replace(activity, is_idle_starved=is_starved),
    )


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the snapshots of this instance."""

    host: str
    has_own_network: bool
    children: Children
    environ: Mapping[str, str]
    """Of programs that read more than this process can."""

    async def read(self, wanted: Wanted) -> Snapshot:
        """Return a snapshot; it takes two samples of the stacks."""
        snapshot = await asyncio.to_thread(
            read_snapshot,
            self.host,
            has_own_network=self.has_own_network,
            answers=wanted.answers,
        )
        if not wanted.native:
            return snapshot
        processes = await add_native_frames(snapshot.processes, self.children, self.environ)
        return replace(snapshot, processes=tuple(processes))


def parts_of(snapshot: Snapshot, number: int) -> Iterator[StacksPart]:
    """Yield a worker's answer to ``StacksWanted``."""
    host = snapshot.host
    text = f"{json.dumps(asdict(snapshot.activity))}\n{pack(snapshot.processes)}"
    for begin in range(0, len(text), PART):
        yield StacksPart(host, number, text[begin : begin + PART], begin + PART >= len(text))


class Collection:
    """The snapshots of all instances, collected at the head, in whose loop its methods run."""

    def __init__(self, reader: Reader, tell_all: Callable[[Message], None]) -> None:
        self._reader = reader
        self._tell_all = tell_all
        self._number = 0
        self._parts: defaultdict[str, list[str]] = defaultdict(list)
        self._answered: dict[str, Snapshot] = {}
        self._reading = asyncio.Lock()

    async def read(self, workers: Iterable[str], wanted: Wanted = LEAN) -> list[Snapshot]:
        """Return the snapshots of the head and ``workers``; one without an answer has a problem."""
        answer_s = SNAPSHOT_S + (NATIVE_S if wanted.native else 0.0)
        if wanted.answers:
            answer_s += WRITE_S + ANSWER_S
        async with self._reading:
            self._number += 1
            self._parts.clear()
            self._answered.clear()
            expected = sorted(workers)
            self._tell_all(encode(StacksWanted(self._number, wanted)))
            until_s = time.monotonic() + APART_S + answer_s
            own = await self._reader.read(wanted)
            while not self._answered.keys() >= set(expected) and time.monotonic() < until_s:
                await asyncio.sleep(0.02)
            others = (self._answered.get(host) or _silent(host, answer_s) for host in expected)
            return [own, *others]

    def take(self, part: StacksPart) -> None:
        """Add a part of a worker's answer."""
        if part.number != self._number:
            return
        self._parts[part.host].append(part.text)
        if part.is_last:
            activity, _, stacks = "".join(self._parts.pop(part.host)).partition("\n")
            # A worker of the same job, and so of the same version, sends no other text.
            with contextlib.suppress(ValueError, TypeError):
                self._answered[part.host] = Snapshot(
                    host=part.host,
                    processes=tuple(unpack(stacks)),
                    activity=Activity(**json.loads(activity)),
                )


def _silent(host: str, seconds: float) -> Snapshot:
    missing = ProcessStack(host=host, pid=0, role="instance", problem=f"silent for {seconds:g} s")
    return Snapshot(host=host, processes=(missing,))
