"""Ends tasks of Ray whose values nobody wants any more, without a danger for the process that submitted them.

``ray.cancel`` in that process itself races with the reply of a task that just ends: Ray looks the task up in one
thread and forgets it in another, and where both come together a check of its own ends the whole process ("Tried to
complete task that was not pending", Ray 2.60; one in some thousand cancelled short tasks). Asked for from another
process, the owner does both in one thread.
"""

from collections.abc import Sequence
from typing import Any

import ray

__all__ = ["cancel"]


def cancel(references: Sequence[Any]) -> None:
    """Have tasks of this process ended, with their processes; those that have ended already stay as they are."""
    # In a list: of one that is an argument itself Ray would wait for the value.
    _CANCEL.remote(list(references))


def _cancel(references: Sequence[Any]) -> None:
    for reference in references:
        ray.cancel(reference, force=True)


# Without a CPU: the tasks that are to end have them all.
_CANCEL: Any = ray.remote(num_cpus=0)(_cancel)
