"""What holds for a whole grid, beside what each of its tasks asks for."""

from dataclasses import dataclass

from raysm.errors import InvalidRequest

__all__ = ["Rules"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How a grid goes about its tasks.

    Raises:
        InvalidRequest: A value cannot be.
    """

    parallel: int = 200
    """Jobs at a time, over all regions."""
    retries: int = 2
    """Tries that a task has beyond its first where its own program failed; others count no try."""
    budget_usd: float | None = None
    """Dollars that the grid never exceeds, open jobs counted as if they ran to their limit; None is no limit."""
    move_data: bool = False
    """Whether a task may run away from its data, which are then read over regions, and paid for."""
    any_type: bool = False
    """Whether of several instance types the service itself takes the next one where the region has none of the best,
    within one job (InstancePreferences); else the grid tries them, a job for each. On demand alone."""
    write_back: bool = False
    """Whether what becomes of the tasks is written to the database that the rows come from."""
    rate: str | None = None
    """Name of the metric that says how much work a job does in a second, all of its instances together:
    ``images_per_s``, as the program reports it (``raysm.report(images_per_s=750)``) or a metric definition of that name
    finds it. The grid adds them up. None is not measured."""
    brake: int = 3
    """The first so many ends of a grid pause it where all are failures with one and the same reason; 0 is never."""
    give_up_s: float = 86_400.0
    """Seconds after which a task is given up that waits while no place that it may go to takes anything: each has done
    nothing but refuse for as long, or its region has not answered, and nothing of the grid runs there."""
    patience_s: float = 3_600.0
    """Seconds that a job waits for its instances before it is taken elsewhere."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in (("parallel", 1), ("retries", 0), ("brake", 0), ("give_up_s", 0), ("patience_s", 1)):
            # Not by what is too small: NaN is neither that, nor ever reached.
            if not getattr(self, name) >= least:
                raise InvalidRequest(f"Rules({name}=…) must be at least {least}, got {getattr(self, name)}")
        if self.rate is not None and not 1 <= len(self.rate) <= 255:
            raise InvalidRequest(f"Rules(rate=…) must be the name of a metric, 1 to 255 characters, got {self.rate!r}")
        if self.budget_usd is not None and not self.budget_usd > 0:
            raise InvalidRequest(f"Rules(budget_usd=…) must be above 0, or None, got {self.budget_usd}")
