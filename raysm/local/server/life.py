"""The interface between the API and the life of a job: ``run`` runs real programs, ``simulated`` plays a scenario."""

from collections.abc import Mapping
from typing import Protocol

from raysm.local.instances import Instance
from raysm.local.server.records import JobRecord
from raysm.local.server.run import JobRun
from raysm.local.server.services import Services
from raysm.local.server.simulated import SimulatedLife
from raysm.request.targets import instance_kind

__all__ = ["JobLife", "life_of"]


class JobLife(Protocol):
    """Carries one job out, whose record was added; nothing happens before ``start``."""

    @property
    def record(self) -> JobRecord:
        """What is known of it now."""

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Its instances by host, while they run."""

    @property
    def running(self) -> bool:
        """Whether something is still done for it."""

    def await_end(self, timeout_s: float) -> bool:
        """Wait until its record is final, at most so long; return whether it is."""

    def await_change(self, seen: int, timeout_s: float) -> int:
        """Wait for another line or status than the ``seen``-th, at most so long; return how many there are."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Ask it to end; raises ApiError where it has ended."""

    def interrupt(self) -> None:
        """Take its spot capacity away; raises ApiError where it has none."""

    def shut_down(self) -> None:
        """End it at once, since the server ends."""


def life_of(services: Services, record: JobRecord) -> JobLife:
    """Return what carries a job out, by the kind of its instances."""
    runs_programs = instance_kind(record.instance_kind).runs_programs
    return JobRun(services, record) if runs_programs else SimulatedLife(services, record)
