"""Tell the user's code from that of raysm, packages and the standard library, in stacks."""

import linecache
import os
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import replace

import raysm
from raysm.core.protocol.stack_signal import read_cell
from raysm.core.protocol.stacks import Frame, Thread
from raysm.instance.exit_status import OWN_CODE

CELL = re.compile(r"<(?:cell \d+|ipython-input-.*|stdin)>")
"""Names of code that users typed; others in brackets are of code that Python or packages made."""


def mark_own_code(threads: Iterable[Thread], pid: int) -> tuple[Thread, ...]:
    """Mark the frames of the user's code, and add their lines.

    Args:
        threads: Of the process.
        pid: Of the process, which may have the lines of a session's cell.

    Returns:
        The threads that explain what a process does, not the dozens of Ray and torch.
    """
    marked = (
        replace(thread, frames=tuple(_explain_frame(frame, pid) for frame in thread.frames))
        for thread in threads
    )
    return tuple(thread for thread in marked if thread.is_main or thread.own_frame is not None)


def _explain_frame(frame: Frame, pid: int) -> Frame:
    if frame.is_native or not _is_own(frame.file):
        return frame
    linecache.checkcache(frame.file)
    source = linecache.getline(frame.file, frame.line)
    if not source:
        source = "".join(read_cell(pid, frame.file)[frame.line - 1 : frame.line])
    return replace(frame, is_own=True, source=source.strip()[:200])


_LIBRARIES = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(os.__file__),
        os.path.dirname(raysm.__file__),
    }
)


def _is_own(file: str) -> bool:
    if file.startswith("<"):
        return CELL.fullmatch(file) is not None
    return (
        re.search(OWN_CODE, file) is None
        and not os.path.realpath(file).startswith(_LIBRARIES)
        and "-packages/" not in file
    )
