"""The workers of a training go first: Ray's daemons, drivers, agents and the embedded SageMaker get what is left.

Where all workers wait for each other, what holds one of them up is paid by all. A desktop's or a server's Linux shares
the CPU among sessions (autogroups, sched(7)), and in each among its processes, by their niceness; in a container only
the latter counts, which is the bootstrap's affair (``RAY_worker_niceness``). Ray's processes are one session.
"""

import contextlib
import os
from pathlib import Path

__all__ = ["go_first", "let_others_first"]

AUTOGROUP = Path("/proc/self/autogroup")
NICE = "10"
"""A tenth of another session's share where both want all: enough for daemons that take 0.2 of a core together."""


def let_others_first(autogroup: Path = AUTOGROUP) -> None:
    """Have the session of this process give way to others; where the system has no such thing, nothing changes."""
    with contextlib.suppress(OSError):  # the kernel takes one change in a tenth of a second from other users than root
        autogroup.write_text(NICE)


def go_first() -> None:
    """Take this process, one of Ray's workers, out of Ray's session, which gives way."""
    let_others_first()
    if AUTOGROUP.exists():  # elsewhere a session more would only be harder to end
        with contextlib.suppress(OSError):  # one that leads a process group cannot leave
            os.setsid()
