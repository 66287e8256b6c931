"""The priority of a training's processes: that of any other program, as under torchrun."""

import contextlib
import os

__all__ = ["restore_priority"]


def restore_priority(process: int = 0) -> None:
    """Give a process, 0 for this one, the priority that programs begin with.

    Ray makes its workers nice (15), and what they start inherits it: every daemon would go before the training, and
    where all workers wait for each other, each wait is paid by all. Only root may do so; elsewhere it stays as it is.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, 0)
