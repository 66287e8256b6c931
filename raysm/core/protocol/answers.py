"""Let the bootstrap ask this process for what no stack shows: last collectives, waiting coroutines.

A thread waits for a byte in a pipe, which costs nothing, and then writes the answer into a file in
memory. So a process whose other threads are blocked answers too; one that holds the GIL does not.
The bootstrap finds both by the file's name in ``/proc/PID/fd``.

This module imports only the standard library, because scripts load it by its path. It works on
Linux only.
"""

import _thread
import contextlib
import gc
import itertools
import os
import signal
import sys
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any

COLLECTIVES = "raysm-collectives"
COROUTINES = "raysm-coroutines"
MAX_COROUTINES = 100
DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
"""torch's functions for NCCL, since release 2.5, and for the other backends."""


def answer_with_collectives(c10d: Any) -> None:
    """Answer from torch's flight recorder, which records collectives by default.

    Args:
        c10d: The module ``torch._C._distributed_c10d``.
    """
    dumps = [getattr(c10d, name) for name in DUMPS if hasattr(c10d, name)]

    def dump_all() -> str:
        parts = []
        for dump in dumps:
            with contextlib.suppress(Exception):
                text = dump()
                parts.append(text if isinstance(text, str) else text.decode())
        return f"[{','.join(parts)}]\n"

    if dumps:
        _serve(COLLECTIVES, dump_all)


AWAITED: Mapping[type, tuple[str, str]] = {
    Coroutine: ("cr_frame", "cr_await"),
    Generator: ("gi_frame", "gi_yieldfrom"),
    AsyncGenerator: ("ag_frame", "ag_await"),
}
"""The attributes of what a task runs: its frame, and what it waits for."""

_loops: list[Any] = []


def answer_with_coroutines(loop: Any) -> None:
    """Answer with the stacks of an event loop's coroutines, and of those of earlier loops."""
    _loops.append(loop)
    _serve(COROUTINES, lambda: "".join(_describe_coroutines()) + "\n")


def _describe_coroutines() -> Iterator[str]:
    """Yield different stacks of coroutines that wait, in the format of faulthandler."""
    from asyncio import all_tasks

    tasks = (task for loop in _loops for task in all_tasks(loop))
    yield from itertools.islice(dict.fromkeys(map(_describe_task, tasks)), MAX_COROUTINES)


def _describe_task(task: Any) -> str:
    lines: list[str] = []
    waiting = task.get_coro()
    # Any other object may be the user's, and have any attribute.
    while (kind := next((kind for kind in AWAITED if isinstance(waiting, kind)), None)) is not None:
        frame_name, awaited_name = AWAITED[kind]
        frame = getattr(waiting, frame_name, None)
        if isinstance(frame, types.FrameType):
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')
        waiting = getattr(waiting, awaited_name, None)
        # Compiled code, such as Ray's, awaits coroutines by this type, which has no attributes.
        if type(waiting).__name__ == "coroutine_wrapper":
            waiting = next(iter(gc.get_referents(waiting)), None)
    return "".join(["Coroutine:\n", *reversed(lines)])


def _serve(kind: str, answer: Callable[[], str]) -> None:
    if sys.platform != "linux" or find_answer(os.getpid(), kind) is not None:
        return
    # Without memory or descriptors, the program must run all the same.
    with contextlib.suppress(OSError, RuntimeError):
        reader, writer = os.pipe()
        file = os.memfd_create(f"{kind}:{writer}")
        files = [reader, writer, file]

        def close() -> None:
            while files:
                with contextlib.suppress(OSError):
                    os.close(files.pop())

        # A forked child has no such thread, and neither collectives nor the loop's coroutines.
        os.register_at_fork(after_in_child=close)
        # Not a threading.Thread, which the program would see among its own.
        _thread.start_new_thread(_answer, (reader, file, answer))


def _answer(reader: int, file: int, answer: Callable[[], str]) -> None:
    # The program's signals are for its own threads.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # The program may close all descriptors.
    with contextlib.suppress(OSError):
        while os.read(reader, 1):
            content = answer().encode()
            os.ftruncate(file, 0)
            written = 0
            while written < len(content):
                written += os.pwrite(file, content[written:], written)


def find_answer(pid: int, kind: str) -> tuple[int, int] | None:
    """Return the descriptors of a process's file and of the pipe's end to write to, or None.

    Args:
        pid: The process.
        kind: ``COLLECTIVES`` or ``COROUTINES``.
    """
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError, ValueError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith(f"/memfd:{kind}:"):
                    writer = target.removeprefix(f"/memfd:{kind}:").removesuffix(" (deleted)")
                    if os.readlink(f"{folder}/{int(writer)}").startswith("pipe:"):
                        return int(name), int(writer)
    return None
