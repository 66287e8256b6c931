"""SIGTERM in the driver: it leaves at once, with 143."""

import os
import signal
from collections.abc import Callable
from types import FrameType

__all__ = ["leave_on_sigterm"]


def leave_on_sigterm(clean: Callable[[], None] = lambda: None) -> None:
    """Leave the process with 143 when SIGTERM comes, after ``clean()``; for work whose finished parts are on disk.

    Without unwinding: an exception that a handler raises can get lost in a wait of Ray's, and unwinding would cancel
    tasks that are just ending, over which Ray 2.60 aborts ("Tried to complete task that was not pending"). The
    bootstrap ends Ray afterwards. Ray puts a handler of its own in the place of this one: call it after ``ray.init``,
    and before, where SIGTERM may come earlier.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        try:
            clean()
        finally:
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
