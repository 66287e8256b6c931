"""What works in a session and is no call of it: jobs of Ray's, kernels of Jupyter.

What flows in is what each of them shows, what flows out is the same of all together.
"""

import asyncio
from typing import Protocol

from raysm.workloads.session.ray_jobs import Seen

__all__ = ["Elsewhere", "Looks"]


class Looks(Protocol):
    """Something that works by itself."""

    async def look(self) -> Seen:
        """Return how much runs, and since when nothing does."""


class Elsewhere:
    """All of it together."""

    def __init__(self, *looks: Looks) -> None:
        """Look at each of ``looks``."""
        self._looks = looks

    async def look(self) -> Seen:
        """Return how much runs of all, and since when nothing does of any."""
        sights = await asyncio.gather(*(each.look() for each in self._looks))
        # The latest end counts: what ended an hour ago says nothing of what ended just now.
        idle = [each.idle_s for each in sights if each.idle_s is not None]
        return Seen(sum(each.running for each in sights), min(idle, default=None))
