"""Ask processes for their last collectives, and read the answers; see ``flight_recorder``."""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping

from raysm.core.protocol.collectives import Collective, parse_records
from raysm.core.protocol.flight_recorder import find_recorder

COLLECTIVES_S = 2.0
"""Seconds for an answer, after the second sample of the stacks. torch takes 0.1 s to write the
2,000 calls that it records."""
POLL_S = 0.01


def ask_for_collectives(pids: Iterable[int]) -> dict[int, int]:
    """Ask those of the processes that record collectives; return their files' descriptors."""
    asked = {}
    for pid in pids:
        found = find_recorder(pid)
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


def collect_collectives(
    asked: Mapping[int, int], until_s: float
) -> dict[int, tuple[Collective, ...]]:
    """Return the answers that come until then, a time of the monotonic clock."""
    answers: dict[int, tuple[Collective, ...]] = {}
    waiting = dict(asked)
    while waiting:
        for pid, file in list(waiting.items()):
            content = b""
            with contextlib.suppress(OSError), open(f"/proc/{pid}/fd/{file}", "rb") as stream:
                content = stream.read()
            # Torn if the process answers an earlier question only now.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if content.endswith(b"\n"):
                    answers[pid] = parse_records(content.decode(), time.time())
                    del waiting[pid]
        if not waiting or time.monotonic() > until_s:
            break
        time.sleep(POLL_S)
    return answers
