"""The commands that the bootstrap runs as child processes; tests replace them to run without Ray."""

import sys
from dataclasses import dataclass

WAIT = "--wait"
"""Tells the driver, and a worker's Ray, to import what it needs and to wait for the cluster's address on its stdin."""

# -P: they begin in the folder of the user's source or of the image, whose json.py or raysm.py is not meant for them.
MODULE = (sys.executable, "-P", "-m")


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    """Commands, to which the bootstrap appends arguments."""

    ray: tuple[str, ...] = (*MODULE, "raysm.bootstrap.ray_start")
    """The ``ray`` command; gets ``start --block ...``, behind WAIT where it joins a head that may not be there yet, and
    tells on the head which nodes are registered."""
    driver: tuple[str, ...] = (*MODULE, "raysm.workloads.driver")
    """Runs the workload on the formed cluster; gets nothing, or WAIT if it is started before that."""
    tracked_driver: tuple[str, ...] = (*MODULE, "raysm.workloads.tracked")
    """Does the same, and mirrors its metrics, where the head is asked to."""
