"""The placement groups of a sweep's trials: each is remembered as it is made, so that none outlives the sweep.

Ray Tune removes a trial's group when the trial ends, unless it was ended between two of its steps, or the loop itself
broke off. What flows in is the size of a trial, what flows out is how many groups were left; only those made here are
ever removed.
"""

import time
from typing import Any, ClassVar

from ray.tune import PlacementGroupFactory
from ray.util import placement_group_table, remove_placement_group

from raysm.workloads.sweep.room import TrialSize

__all__ = ["Reservation", "alive_groups", "remove_groups"]

REMOVED = "REMOVED"

REMOVED_WITHIN_S = 30.0
"""Ray removes in the background; a raylet that is busy takes its time."""


class Reservation(PlacementGroupFactory):  # type: ignore[misc]
    """What one trial takes, all of it at once or nothing."""

    groups: ClassVar[list[Any]] = []
    """All groups of this process, which is the driver of one sweep."""

    def to_placement_group(self) -> Any:
        """Make the group of one trial."""
        group = super().to_placement_group()
        # Tune asks for a group whenever it may begin a trial, and tells nobody which it made.
        Reservation.groups.append(group)
        return group

    @classmethod
    def of(cls, size: TrialSize) -> "Reservation":
        """Return the reservation of trials of a size: close together, and over several instances where it must be."""
        # Not STRICT_PACK: a trial of more workers than one instance has GPUs would never begin.
        return cls(size.bundles, strategy="PACK")


def alive_groups() -> list[str]:
    """Return the IDs of the groups that were made here and are there."""
    table = placement_group_table()
    own_ids = {group.id.hex() for group in Reservation.groups}
    return [name for name, row in table.items() if name in own_ids and row["state"] != REMOVED]


def remove_groups() -> list[str]:
    """Remove the groups that are left; return those that are there all the same after a while."""
    left = alive_groups()
    for group in Reservation.groups:
        if group.id.hex() in left:
            remove_placement_group(group)
    deadline_s = time.monotonic() + REMOVED_WITHIN_S
    # remove_placement_group returns before anything is removed.
    while left and time.monotonic() < deadline_s:
        time.sleep(0.05)
        left = alive_groups()
    if not left:
        Reservation.groups.clear()
    return left
