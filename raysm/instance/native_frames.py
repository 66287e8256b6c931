"""Read the stacks of processes with their native frames, by py-spy, where the image has it.

py-spy stops a process while it reads it, for up to a second, so this is only done when a user asks
for it. It needs ptrace: root, or CAP_SYS_PTRACE.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from raysm.core.protocol.stacks import Frame, ProcessStack, Thread
from raysm.instance.children import Children
from raysm.instance.own_code import mark_own_code

NATIVE_S = 20.0
"""Seconds that the native frames of an instance's processes take at most."""
MAX_NAME = 80
"""Characters of a function's name; a template of C++ may have thousands."""
NOT_INSTALLED = "py-spy is not in the image (pip install py-spy)"
TOO_SLOW = f"py-spy was not ready after {NATIVE_S:g} s"
NOT_ALLOWED = "py-spy may not read other processes here (it needs root or CAP_SYS_PTRACE)"


async def add_native_frames(
    processes: Sequence[ProcessStack],
    children: Children,
    environ: Mapping[str, str],
    limit_s: float = NATIVE_S,
) -> list[ProcessStack]:
    """Return the processes with native frames, or with the reason why they have none.

    Processes without the user's code stay as they are: they explain little, and take as long.
    """
    py_spy = find_py_spy(environ)
    if py_spy is None:
        return [replace(each, native_problem=NOT_INSTALLED) for each in processes]
    until_s = asyncio.get_running_loop().time() + limit_s
    # Each run reads the symbols of large libraries, which takes a core.
    cores = asyncio.Semaphore(os.cpu_count() or 1)

    async def add(process: ProcessStack) -> ProcessStack:
        # py-spy would wait for a process that cannot be stopped, or let a stopped one go on.
        if process.problem or not any(thread.own_frame for thread in process.threads):
            return process
        async with cores:
            left_s = until_s - asyncio.get_running_loop().time()
            return await _add(process, py_spy, children, environ, left_s)

    return await asyncio.gather(*map(add, processes))


def find_py_spy(environ: Mapping[str, str]) -> str | None:
    folders = [environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    return shutil.which("py-spy", path=os.pathsep.join(folders))


async def _add(
    process: ProcessStack,
    py_spy: str,
    children: Children,
    environ: Mapping[str, str],
    limit_s: float,
) -> ProcessStack:
    if limit_s <= 0:
        return replace(process, native_problem=TOO_SLOW)
    command = [py_spy, "dump", "--native", "--json", "--pid", str(process.pid)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = children.start(command, environ, stdout=output, stderr=errors)
        status = await child.wait(limit_s)
        if status is None:
            child.signal(signal.SIGKILL)
            await child.wait()
            # If py-spy has just asked the process to stop, it would stop only now.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            return replace(process, native_problem=TOO_SLOW)
        try:
            threads = parse_threads(_read(output), process.pid)
        except (ValueError, KeyError, TypeError):
            return replace(process, native_problem=_explain_error(_read(errors)))
    return replace(process, threads=mark_own_code(threads, process.pid))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _explain_error(text: str) -> str:
    if re.search("permission denied|not permitted", text, re.IGNORECASE):
        return NOT_ALLOWED
    first = next(iter(text.strip().splitlines()), "it wrote nothing")
    return f"py-spy failed: {first.removeprefix('Error: ')[:200]}"


def parse_threads(text: str, pid: int) -> tuple[Thread, ...]:
    """Return the threads in the JSON of ``py-spy dump``, the main thread first.

    Raises:
        ValueError, KeyError, TypeError: The text has another form.
    """
    threads = [
        Thread(frames=_parse_frames(thread["frames"]), is_main=thread["os_thread_id"] == pid)
        for thread in json.loads(text)
    ]
    return tuple(sorted(threads, key=lambda thread: not thread.is_main))


def _parse_frames(values: Sequence[Mapping[str, Any]]) -> tuple[Frame, ...]:
    frames = [_parse_frame(value) for value in values]
    frames = [frame for frame in frames if not frame.file.startswith("<frozen ")]
    # What has called Python, at the start of a thread, explains nothing.
    while any(not frame.is_native for frame in frames) and frames[-1].is_native:
        frames.pop()
    return tuple(frames)


def _parse_frame(value: Mapping[str, Any]) -> Frame:
    module = value["module"]
    if module is None:
        return Frame(file=value["filename"], line=value["line"], function=value["name"])
    # An address differs in each process, and says nothing.
    name = "?" if value["name"].startswith("0x") else value["name"]
    if len(name) > MAX_NAME:
        name = f"{name[: MAX_NAME - 1]}…"
    return Frame(file=module, line=0, function=name, is_native=True)
