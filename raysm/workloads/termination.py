"""How the driver leaves at once: with 143 when SIGTERM comes, with 0 when all is done."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

__all__ = ["leave", "leave_on_sigterm"]


def leave() -> NoReturn:
    """Leave the process with 0; for work that is done, and on the disk.

    Without ``ray.shutdown``, which takes 0.3 s, and the end of an interpreter with Ray in it, which takes 0.2: the
    bootstrap ends Ray afterwards, and with it what Ray keeps of this driver.
    """
    # ``os._exit`` flushes nothing.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def leave_on_sigterm(clean: Callable[[], None] = lambda: None) -> None:
    """Leave the process with 143 when SIGTERM comes, after ``clean()``; for work whose finished parts are on disk.

    Without unwinding: an exception that a handler raises can get lost in a wait of Ray's, and unwinding would cancel
    tasks that are just ending, over which Ray 2.60 aborts ("Tried to complete task that was not pending"). The
    bootstrap ends Ray afterwards. Ray puts a handler of its own in the place of this one: call it after ``ray.init``,
    and before, where SIGTERM may come earlier.
    """

    def end(number: int, frame: FrameType | None) -> None:
        try:
            clean()
        finally:
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
