"""How long a job takes to begin: from the first program of the head's container to the workload on a formed cluster.

Noted once by the driver, which is one process for one job, and told in the manifest of whatever the workload leaves.
What flows in is what the head was told, what flows out is a figure for ``Manifest.measures``.
"""

import time
from collections.abc import Mapping

from raysm.bootstrap.environment import Environment

__all__ = ["START_S", "Beginning"]

START_S = "start_s"
"""Name of the figure: seconds."""


class Beginning:
    """When this process's workload began."""

    _measures: Mapping[str, float] = {}

    @classmethod
    def note(cls, environment: Environment, now_s: float | None = None) -> None:
        """Note that it begins now.

        Args:
            environment: What the head was told, with the moment at which its container began.
            now_s: Seconds since the epoch; None asks the clock.
        """
        if environment.began_s is not None:
            now_s = time.time() if now_s is None else now_s
            # Not below 0: the clock may have been set in between.
            cls._measures = {START_S: round(max(0.0, now_s - environment.began_s), 3)}

    @classmethod
    def measures(cls) -> Mapping[str, float]:
        """Return the figure by its name; nothing where nobody knows."""
        return cls._measures
