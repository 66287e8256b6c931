"""The rules for all rows of a grid."""

from dataclasses import dataclass

from raysm.core.request.options import check_amounts
from raysm.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Rules for all rows of a grid.

    Raises:
        InvalidRequest: A value is out of range.
    """

    parallel: int = 200
    """Jobs at a time, over all regions."""
    retries: int = 2
    """Retries of a row whose own program failed; other failures do not count."""
    max_cost: float | None = None
    """USD that the jobs may cost together; open jobs count as if they ran to their limit. None is
    no limit."""
    budget_usd: float | None = None
    """The older name of ``max_cost``; it is None once the rules are made."""
    move_data: bool = False
    """True allows a row to run in another region than its data; reading them across regions then
    costs money."""
    any_type: bool = False
    """True lets the service choose among several instance types within one job
    (InstancePreferences), on demand only; False tries the types one after the other, a job for
    each."""
    write_back: bool = False
    """True writes the states of the rows to the database that the rows come from."""
    rate: str | None = None
    """Name of a metric of work per second of a whole job, for example ``images_per_s``: the program
    reports it (``raysm.report(images_per_s=750)``), or a metric definition of that name finds it.
    The grid adds up the jobs' rates. None measures nothing."""
    brake: int = 3
    """The grid pauses if this many of its first jobs all failed with the same reason; 0 disables
    this."""
    give_up_s: float = 86_400.0
    """Seconds after which a waiting row fails if none of its places takes jobs: each refuses all
    jobs or is in a region that does not answer, and no job of the grid runs there."""
    patience_s: float = 3_600.0
    """Seconds that a job waits for its instances before it is sent elsewhere."""

    def __post_init__(self) -> None:
        for name, minimum in (
            ("parallel", 1),
            ("retries", 0),
            ("brake", 0),
            ("give_up_s", 0),
            ("patience_s", 1),
        ):
            # "not >=" also refuses NaN.
            if not getattr(self, name) >= minimum:
                raise InvalidRequest(
                    f"Rules({name}=…) must be at least {minimum}, got {getattr(self, name)}"
                )
        if self.rate is not None and not 1 <= len(self.rate) <= 255:
            raise InvalidRequest(
                "Rules(rate=…) must be the name of a metric, "
                f"1 to 255 characters, got {self.rate!r}"
            )
        check_amounts("Rules", max_cost=self.max_cost, budget_usd=self.budget_usd)
        if self.budget_usd is not None:
            if self.max_cost is not None:
                raise InvalidRequest(
                    "Rules: budget_usd is the older name of max_cost; give max_cost alone"
                )
            object.__setattr__(self, "max_cost", self.budget_usd)
            object.__setattr__(self, "budget_usd", None)
