"""The Python stacks of a job's processes: what they wait for, and one sentence about them.

Equal ones are grouped.

``raysm.instance.stacks`` reads them in the instances. The client of ``raysm stacks`` and the
watchdog of the head show them.
"""

import itertools
import json
import re
import zlib
from base64 import b85decode, b85encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from raysm.core.protocol.collectives import Collective, differences, lines_of_collectives

_FOLDERS = re.compile(r".*/raysm/source/|.*-packages/|.*/(?=raysm/(?:core|instance|features)/)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One frame of a stack."""

    file: str
    line: int
    function: str
    is_own: bool = False
    """True for the user's code: neither raysm's, nor the standard library's, nor a package's."""
    source: str = ""
    """The line itself, where the instance could read it."""
    is_native: bool = False
    """True for a function of a compiled library, which is ``file``; it has no line."""

    @property
    def place(self) -> str:
        name = self.file.rpartition("/")[2]
        return name if self.is_native else f"{name}:{self.line}"

    @property
    def path(self) -> str:
        """The file: the user's as on the user's machine, that of a package from the package on."""
        return _FOLDERS.sub("", self.file)


@dataclass(frozen=True, kw_only=True, slots=True)
class Thread:
    frames: tuple[Frame, ...]
    """The innermost frame first."""
    is_main: bool = False
    is_coroutine: bool = False
    """True for a coroutine that waits, which is on the stack of no thread."""

    @property
    def own_frame(self) -> Frame | None:
        """The innermost frame of the user's code."""
        return next((frame for frame in self.frames if frame.is_own), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStack:
    """The stacks of one process, and what the kernel says about it."""

    host: str
    pid: int
    role: str
    """``driver``, ``rank 3``, ``worker`` or the name of the program."""
    threads: tuple[Thread, ...] = ()
    is_still: bool = True
    """True if its stack was the same in both samples."""
    busy: float = 0.0
    """Processor seconds for each second between the samples."""
    is_starved: bool = False
    """True if a thread could have run all the time between the samples, on a machine with too few
    cores."""
    cpu_s: float = 0.0
    """Processor seconds since its start, with those of its children that have no stacks."""
    main_cpu_s: float = 0.0
    """Processor seconds of its main thread alone."""
    io_bytes: int = 0
    """Bytes that it and these children have read and written since their start."""
    page_faults: int = 0
    """Pages of memory that it and these children have touched for the first time, or again after
    they were swapped out."""
    problem: str = ""
    """Why its stack could not be read."""
    collectives: tuple[Collective, ...] | None = None
    """Its last collectives; None if it records none, has not answered or was not asked."""
    native_problem: str = ""
    """Why it has no native frames, if they were asked for."""

    @property
    def rank(self) -> int | None:
        named = re.fullmatch(r"rank (\d+)", self.role)
        return int(named[1]) if named else None

    @property
    def thread(self) -> Thread | None:
        """The thread to look at first: the main thread, or the first that runs the user's code."""
        for thread in self.threads:
            if thread.own_frame is not None:
                return thread
        return next(iter(self.threads), None)


# -- what a thread waits for

COLLECTIVES = "torch/distributed/distributed_c10d.py"

WAITS: tuple[tuple[str, str, str], ...] = (
    (
        r"torch/distributed/distributed_c10d\.py$",
        r"new_group|init_process_group|_new_.*|_store.*",
        "forms a process group",
    ),
    (r"torch/distributed/rendezvous\.py$", r".*", "forms a process group"),
    (r"torch/autograd/(graph|__init__)\.py$", r"_engine_run_backward|backward",
     "computes gradients"),
    (r"torch/utils/data/dataloader\.py$", r"_try_get_data|_get_data|_next_data",
     "waits for the data loader"),
    (r"multiprocessing/popen_\w+\.py$", r".*", "waits for a process"),
    (r"subprocess\.py$", r"wait|_wait|communicate|_communicate|_try_wait", "waits for a program"),
    (r"ray/_private/worker\.py$", r"get|wait|get_objects", "waits in ray.{function}"),
    (r"queue\.py$|multiprocessing/queues\.py$", r"get|put", "waits for a queue"),
    (r"multiprocessing/synchronize\.py$", r".*", "waits for a lock"),
    (r"multiprocessing/connection\.py$", r".*", "waits for a process"),
    (r"concurrent/futures/_base\.py$", r"result|wait|exception", "waits for a future"),
    (r"threading\.py$", r"join|_wait_for_tstate_lock", "waits for a thread"),
    (r"threading\.py$", r"wait|acquire|wait_for", "waits for a lock"),
    (r"ssl\.py$|socket\.py$|http/client\.py$", r".*", "waits for the network"),
    (r"selectors\.py$|asyncio/base_events\.py$", r".*", "waits for events"),
)  # fmt: skip
"""Pattern of a file, pattern of a function, what a thread does there; the first fit counts."""


def find_collective(thread: Thread) -> str:
    """Return the collective of torch.distributed that a thread is in, ``all_reduce``, or ""."""
    # The outermost function has the name that the user called.
    for frame in reversed(_library_frames(thread)):
        if frame.file.endswith(COLLECTIVES) and not frame.function.startswith("_"):
            if not re.fullmatch(WAITS[0][1], frame.function):
                return frame.function
    return ""


def _library_frames(thread: Thread) -> list[Frame]:
    return [*itertools.takewhile(lambda frame: not frame.is_own, thread.frames)]


def find_wait(thread: Thread) -> str:
    """Return what a thread waits for, ``waits in all_reduce``.

    Return "" if no frame above the user's code shows it.
    """
    if collective := find_collective(thread):
        return f"waits in {collective}"
    frames = _library_frames(thread)
    # What a thread waits for is said better by the caller: a data loader waits for events too.
    for file, function, words in WAITS:
        for frame in frames:
            if re.search(file, frame.file) and re.fullmatch(function, frame.function):
                return words.format(function=frame.function)
    return ""


# -- groups and sentences


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Processes whose stacks are alike."""

    processes: tuple[ProcessStack, ...]

    @property
    def first(self) -> ProcessStack:
        return self.processes[0]

    @property
    def names(self) -> str:
        """``ranks 0, 2 and 3``, or ``worker 123 on algo-2``."""
        ranks = [process.rank for process in self.processes if process.rank is not None]
        if len(ranks) == len(self.processes):
            if len(ranks) == 1:
                return f"rank {ranks[0]}"
            return f"ranks {', '.join(str(rank) for rank in sorted(ranks))}"
        shown = [f"{each.role} {each.pid} on {each.host}" for each in self.processes[:3]]
        if len(self.processes) > 3:
            shown.append(f"{len(self.processes) - 3} more")
        return ", ".join(shown)

    @property
    def act(self) -> str:
        """What they do, for a sentence after their names: ``wait in all_reduce (train.py:41)``."""
        is_one = len(self.processes) == 1
        first = self.first
        if first.problem:
            return f"{'is' if is_one else 'are'} {first.problem}"
        thread = first.thread
        if thread is None:
            return f"{'has' if is_one else 'have'} no Python stack"
        own = thread.own_frame
        wait = find_wait(thread)
        if wait:
            if not is_one:
                wait = re.sub(r"^(\w+)s\b", r"\1", wait)
            return wait if own is None else f"{wait} ({own.place})"
        python = (frame for frame in thread.frames if not frame.is_native)
        frame = own or next(python, thread.frames[0])
        source = f"`{frame.source}` " if frame.source else f"{frame.function} "
        return f"{'is' if is_one else 'are'} in {source}({frame.place})"


def group(processes: Iterable[ProcessStack]) -> list[Group]:
    """Return processes with equal stacks together.

    The smallest groups come first, because the odd one is the guilty one. Processes that run none
    of the user's code come last.
    """
    alike: defaultdict[Any, list[ProcessStack]] = defaultdict(list)
    for process in processes:
        thread = process.thread
        stack = None if thread is None else tuple(map(_alike, thread.frames))
        # A process that is no rank is never grouped with one.
        key: tuple[Any, ...] = (process.rank is None, process.problem, stack)
        if stack is None and not process.problem:
            key = (process.host, process.pid, None)
        alike[key].append(process)
    found = [Group(processes=tuple(sorted(each, key=_order))) for each in alike.values()]
    return sorted(found, key=_shown_first)


def _alike(frame: Frame) -> str:
    return f"{frame.place} {frame.function}" if frame.is_native else frame.place


def _shown_first(group: Group) -> tuple[Any, ...]:
    thread = group.first.thread
    runs_own = bool(group.first.problem) or (thread is not None and thread.own_frame is not None)
    return (not runs_own, len(group.processes), _order(group.first))


def _order(process: ProcessStack) -> tuple[Any, ...]:
    return (process.rank is None, process.rank or 0, process.host, process.pid)


def sentence(groups: Sequence[Group]) -> str:
    """Return who waits where and who is elsewhere, the largest group first.

    If there are ranks, only ranks are named.
    """
    processes = [process for each in groups for process in each.processes]
    ranks = [process for process in processes if process.rank is not None]
    alike: defaultdict[str, list[ProcessStack]] = defaultdict(list)
    # Ranks at one line are named together, whatever library calls they are in below it.
    for process in ranks or processes:
        alike[Group(processes=(process,)).act].append(process)
    merged = [Group(processes=tuple(sorted(each, key=_order))) for each in alike.values()]
    shown = sorted(merged, key=lambda each: -len(each.processes))
    if not shown:
        return "no Python process of this job is busy"
    parts = [f"{each.names} {each.act}" for each in shown[:5]]
    if len(shown) > 5:
        parts.append(f"{len(shown) - 5} more stacks differ")
    return "; ".join(parts)


MAX_FRAMES = 40


APART_S = 1.0
"""Seconds between the two samples of each process."""


def lines_of(groups: Sequence[Group]) -> Iterator[str]:
    """Yield the stacks as text, a group after the other; library code alone takes one line."""
    for each in groups:
        yield f"{each.names} {each.act}"
        threads = [thread for thread in each.first.threads if thread.own_frame is not None]
        if not threads:
            yield ""
            continue
        for process in each.processes:
            moves = "unchanged" if process.is_still else "changed"
            yield (
                f"  {process.role} on {process.host}, pid {process.pid}: {moves} within "
                f"{APART_S:g} s, {process.busy:.0%} of a core"
            )
            for line in lines_of_collectives(process.collectives or ()):
                yield f"    {line}"
        for thread in threads:
            which = "main thread" if thread.is_main else "another thread"
            if thread.is_coroutine:
                which = "a coroutine that waits"
            yield f"  {which}, innermost call first:"
            for frame in thread.frames[:MAX_FRAMES]:
                mark = ">" if frame.is_own else " "
                source = f"  {frame.source}" if frame.source else ""
                where = frame.place if frame.is_native else f"{frame.path}:{frame.line}"
                yield f"  {mark} {where} {frame.function}{source}"
        yield ""


def remarks(processes: Sequence[ProcessStack]) -> Iterator[str]:
    """Yield in which collectives and lines ranks differ, and why native frames are missing."""
    yield from compare_collectives(processes)
    yield from compare_calls(processes)
    yield from native_remarks(processes)


def compare_collectives(processes: Iterable[ProcessStack]) -> Iterator[str]:
    """Yield in which collectives ranks differ, a sentence for each process group."""
    ranks = {
        process.rank: process.collectives
        for process in processes
        if process.rank is not None and process.collectives is not None
    }
    yield from differences(ranks)


def compare_calls(processes: Iterable[ProcessStack]) -> Iterator[str]:
    """Yield in which function of the user's code the calls of ranks part, if they do so in one.

    The innermost lines, which ``sentence`` names, are often innocent: one rank evaluates while the
    others still train.
    """
    calls = [(process, _own_calls(process)) for process in processes if process.rank is not None]
    calls = [(process, own) for process, own in calls if own]
    if len(calls) < 2:
        return
    depth = 0
    while len({own[depth].place for _, own in calls}) == 1:
        depth += 1
        if any(len(own) == depth for _, own in calls):
            return
    parting = [own[depth] for _, own in calls]
    first = parting[0]
    is_one_function = len({(frame.path, frame.function) for frame in parting}) == 1
    # Otherwise ``sentence`` names these very lines.
    has_inner = any(len(own) > depth + 1 for _, own in calls)
    if not is_one_function or not has_inner:
        return
    by_line: defaultdict[int, list[ProcessStack]] = defaultdict(list)
    sources = {}
    for process, own in calls:
        by_line[own[depth].line].append(process)
        sources[own[depth].line] = f" `{own[depth].source}`" if own[depth].source else ""
    parts = [
        f"{Group(processes=tuple(sorted(each, key=_order))).names} at line {line}{sources[line]}"
        for line, each in sorted(by_line.items(), key=lambda item: -len(item[1]))
    ]
    file = first.file.rpartition("/")[2]
    where = file if first.function == "<module>" else f"{first.function} ({file})"
    yield f"their calls part in {where}: {'; '.join(parts)}"


def _own_calls(process: ProcessStack) -> list[Frame]:
    """Return the frames of the user's code in the thread to look at, the outermost first."""
    thread = process.thread
    return [] if thread is None else [frame for frame in reversed(thread.frames) if frame.is_own]


def native_remarks(processes: Iterable[ProcessStack]) -> Iterator[str]:
    """Yield each reason why processes have no native frames, and where it holds."""
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for process in processes:
        if process.native_problem:
            hosts[process.native_problem].add(process.host)
    for problem, where in hosts.items():
        yield f"no native frames on {', '.join(sorted(where))}: {problem}"


# -- faulthandler's text


_BEGIN = re.compile(r"^(Stack|Coroutine)\b.*:$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def parse(text: str) -> tuple[Thread, ...]:
    """Return the threads whose stacks faulthandler wrote, or the coroutines of ``answers``."""
    stacks: list[list[Frame]] = []
    coroutines = []
    for line in text.splitlines():
        if begins := _BEGIN.match(line):
            stacks.append([])
            coroutines.append(begins[1] == "Coroutine")
        # The frames of an import say nothing.
        elif stacks and (found := _FRAME.match(line)) and not found[1].startswith("<frozen "):
            frame = Frame(file=found[1], line=int(found[2]), function=found[3])
            stacks[-1].append(frame)
    return tuple(
        Thread(frames=tuple(frames), is_coroutine=is_coroutine)
        for frames, is_coroutine in zip(stacks, coroutines, strict=True)
        if frames
    )


# -- the way from the instances to a client


def pack(processes: Sequence[ProcessStack]) -> str:
    """Return the stacks as short ASCII text, for the lines of the control channel."""
    content = json.dumps([asdict(process) for process in processes]).encode()
    return b85encode(zlib.compress(content)).decode()


def unpack(text: str) -> list[ProcessStack]:
    """Return what ``pack`` packed.

    Raises:
        ValueError: The text is not packed stacks.
    """
    try:
        values = json.loads(zlib.decompress(b85decode(text)))
        return [_process(value) for value in values]
    except (zlib.error, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not the stacks of an instance: {error}") from error


def _process(value: dict[str, Any]) -> ProcessStack:
    threads = [
        Thread(
            frames=tuple(Frame(**frame) for frame in thread["frames"]),
            is_main=thread["is_main"],
            is_coroutine=thread["is_coroutine"],
        )
        for thread in value["threads"]
    ]
    process = ProcessStack(**{**value, "threads": (), "collectives": None})
    calls = value.get("collectives")
    if calls is not None:
        process = replace(process, collectives=tuple(map(_collective, calls)))
    return replace(process, threads=tuple(threads))


def _collective(value: dict[str, Any]) -> Collective:
    shapes = tuple(tuple(shape) for shape in value["shapes"])
    return Collective(**{**value, "shapes": shapes, "dtypes": tuple(value["dtypes"])})
