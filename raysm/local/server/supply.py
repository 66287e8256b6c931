"""How the instances of one job come and go: the scenario of its region and chance flow in, yes or no flows out.

The same for jobs that really run and for simulated ones: what a region has, both take from it.
"""

from random import Random

from raysm.local.server.endings import INSUFFICIENT, ended
from raysm.local.server.records import JobRecord
from raysm.local.server.services import Services

__all__ = ["Supply"]


class Supply:
    """The instances of one job, in one attempt after the other."""

    def __init__(
        self, services: Services, record: JobRecord, chance: Random, interruptions: Random | None = None
    ) -> None:
        """Take nothing yet.

        Args:
            services: Of the server.
            record: The job.
            chance: What is left to chance is drawn from it.
            interruptions: Interruptions are, in its place.
        """
        self._stock = services.stock
        self._capacity = services.scenario.of(record.region).capacity
        self._record = record
        self._chance = chance
        self._interruptions = interruptions or chance
        self._is_taken = False

    def draw_start_s(self) -> float:
        """Return the seconds that they take to begin."""
        return self._capacity.draw_start_s(self._chance)

    def draw_interruption_s(self, *, spot: bool) -> float:
        """Return the seconds of running after which they are taken back; infinity is never."""
        return self._capacity.draw_interruption_s(self._interruptions if spot else None)

    def is_taken_back_at(self, line: str, *, spot: bool) -> bool:
        """Whether they are taken back now that the job has written this line."""
        return spot and self._stock.interrupts(self._record.region, line)

    def take(self) -> bool:
        """Take them; return whether the region has them."""
        if self._chance.random() >= self._capacity.insufficient:
            self._is_taken = self._stock.take(self._record)
        return self._is_taken

    def give_back(self) -> None:
        """Return them; harmless where there are none."""
        if self._is_taken:
            self._is_taken = False
            self._stock.give_back(self._record)

    def lack(self) -> tuple[str, str, str, str | None]:
        """Return status, secondary status, message and reason of a job that gets none."""
        title = self._record.api.title
        if self._capacity.lack_ends == "Failed":
            return "Failed", "Failed", f"{title} job failed", INSUFFICIENT
        return "Stopped", *ended("wait", title), None
