"""How what a task finds comes to the owners of its rows: directly, each piece once, past the head.

What flows in is a tile, what flows out to the head is nothing but that it is done. A task is done when the owners have
taken its pieces: so no more parts are on their way than there are tasks, and one that fails is tried again as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayActorError, RayTaskError

from raysm.errors import BlockFailed, RaysmError
from raysm.workloads.similarity.arithmetic.row_order import consecutive
from raysm.workloads.similarity.owning.owned import Owned
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.tile_task import Comparing, TileTask

__all__ = ["RESTARTS", "Handover", "answers_of"]

RESTARTS = 8
"""How often an owner is begun anew, its instances' losses among it. More is its own doing: of an instance that is short
of memory, say, Ray ends owners before tasks, and the range would be computed again for ever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """Compares as its mode does, and hands over what was found. It travels to the tasks."""

    mode: Comparing
    """What is asked for."""
    owned: Owned
    """How its result is cut."""
    ranges: Ranges
    """Which rows each owner has."""
    owners: Sequence[Any]
    """The actors, one for each range: a handle stays good when Ray begins its actor anew."""

    def compare(self, context: Context, task: TileTask) -> Mapping[str, NDArray[Any]]:
        """Do one task; return nothing, or why it was given up."""
        arrays = self.mode.compare(context, self.owned.informed(task, self._bounds))
        if self.owned.given_up(task, arrays):
            return arrays
        # All at once, and then waited for: the owners take them in beside each other. Waited for, since a task that is
        # done before its pieces are taken would let more and more of them pile up in the object store.
        pieces = self.owned.split(task, arrays, self.ranges)
        answers_of([self.owners[at].take.remote(str(task), piece) for at, piece in pieces])
        return {}

    def _bounds(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        references = [
            self.owners[at].bounds.remote(list(consecutive(numbers[some]))) for at, some in self.ranges.of(numbers)
        ]
        # A tile on the diagonal has no columns of its own to ask about.
        return np.concatenate(answers_of(references)) if references else np.empty(0, dtype=np.float32)


def answers_of(calls: Sequence[Any]) -> list[Any]:
    """Return what owners answered.

    Raises:
        RaysmError: What an owner could not do, as it said it.
        BlockFailed: It ended whenever it was begun.
    """
    try:
        answers: list[Any] = ray.get(list(calls))
        return answers
    except RayTaskError as error:
        # Its wrapper is a traceback of the owner's process, and no type that anybody asks for.
        if isinstance(error.cause, RaysmError):
            raise error.cause from None
        raise
    except RayActorError as error:
        block = "a range of the result, on the instance that owns it,"
        raise BlockFailed(block, RESTARTS + 1, str(error), type(error).__name__) from None
