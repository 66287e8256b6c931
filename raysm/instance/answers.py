"""Ask processes for their last collectives and for their coroutines, and read the answers.

They answer themselves; see ``raysm.core.protocol.answers``.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from raysm.core.protocol.answers import COLLECTIVES, COROUTINES, find_answer
from raysm.core.protocol.collectives import Collective, parse_records
from raysm.core.protocol.stacks import Thread, parse

ANSWER_S = 2.0
"""Seconds for an answer, after the second sample of the stacks. torch takes 0.1 s to write the
2,000 calls that it records."""
POLL_S = 0.01

T = TypeVar("T")


class Answers:
    """What processes were asked for and answer."""

    def __init__(self, pids: Iterable[int]) -> None:
        """Ask these processes, of which most have no answer."""
        known = list(pids)
        self._collectives = _ask(known, COLLECTIVES)
        self._coroutines = _ask(known, COROUTINES)

    def collectives(self, until_s: float) -> dict[int, tuple[Collective, ...]]:
        """Return the answers that come until then, a time of the monotonic clock, by pid."""
        return _collect(self._collectives, until_s, lambda text: parse_records(text, time.time()))

    def coroutines(self, until_s: float) -> dict[int, tuple[Thread, ...]]:
        """Return the stacks of coroutines that come until then, by pid."""
        return _collect(self._coroutines, until_s, parse)


def _ask(pids: Iterable[int], kind: str) -> dict[int, int]:
    """Ask those of the processes that answer; return their files' descriptors."""
    asked = {}
    for pid in pids:
        found = find_answer(pid, kind)
        if found is not None:
            file, pipe = found
            with contextlib.suppress(OSError):
                os.truncate(f"/proc/{pid}/fd/{file}", 0)
                writer = os.open(f"/proc/{pid}/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(writer, b"?")
                finally:
                    os.close(writer)
                asked[pid] = file
    return asked


def _collect(asked: Mapping[int, int], until_s: float, read: Callable[[str], T]) -> dict[int, T]:
    answers: dict[int, T] = {}
    waiting = dict(asked)
    while waiting:
        for pid, file in list(waiting.items()):
            content = b""
            with contextlib.suppress(OSError), open(f"/proc/{pid}/fd/{file}", "rb") as stream:
                content = stream.read()
            # Torn if the process answers an earlier question only now.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if content.endswith(b"\n"):
                    answers[pid] = read(content.decode())
                    del waiting[pid]
        if not waiting or time.monotonic() > until_s:
            break
        time.sleep(POLL_S)
    return answers
