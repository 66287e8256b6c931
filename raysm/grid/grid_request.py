"""A grid as the user asks for it: what all rows share, where they come from, and where they may run. Frozen data."""

from dataclasses import dataclass, field

from raysm.errors import InvalidRequest
from raysm.grid.filling import Template
from raysm.grid.rows.columns import REGION, tasks_of
from raysm.grid.rows.source import MAX_ROWS, Source
from raysm.grid.rules import Rules
from raysm.grid.store import path_of
from raysm.grid.task import Task

__all__ = ["GridRequest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRequest:
    """Many jobs of one request.

    Raises:
        InvalidRequest: The name, a region or a number cannot be.
    """

    name: str
    """Of the grid: the same name twice is the same grid."""
    template: Template
    """The request of which each row's is made."""
    source: Source
    """Where the rows come from."""
    regions: tuple[str, ...] = ()
    """Where rows may run, the best first; empty is where their data lie, and else the target's own region."""
    instance_types: tuple[str, ...] = ()
    """On which of these types, the best first."""
    count: int = 1
    """Instances of each job, where its row does not say."""
    markets: tuple[bool, ...] = (False,)
    """Whether on spare capacity: False, True, or both."""
    rules: Rules = field(default_factory=Rules)
    """What holds for all of it."""
    max_rows: int = MAX_ROWS
    """More are refused."""
    shared: bool | None = None
    """Whether its store is kept in the target's bucket too, so that any machine can look at it, and go on with it; None
    is where its jobs are billed, as they outlive a laptop."""
    identity: str | None = None
    """What tells it from another grid of its name, as JSON, where its files were brought elsewhere: paths are part of
    it; None follows from the template."""

    def __post_init__(self) -> None:
        """Check the fields."""
        path_of(self.name)
        for region in self.regions:
            if not REGION.fullmatch(region):
                raise InvalidRequest(f"{region!r} is not a region; write it like us-east-1")
        if self.count < 1:
            raise InvalidRequest(f"count must be at least 1 instance per job, got {self.count}")
        if self.max_rows < 1:
            raise InvalidRequest(f"max_rows must be at least 1, got {self.max_rows}")

    @property
    def is_shared(self) -> bool:
        """Whether other machines find it."""
        return self.template.target.is_billed if self.shared is None else self.shared

    def tasks(self) -> list[Task]:
        """Read the rows, and check that the template takes nothing that they have not.

        Raises:
            InvalidRequest: They cannot be read, a value cannot be, or a template takes another column.
        """
        table = self.source.read(self.max_rows)
        self.template.check(table.columns, table.origin)
        return tasks_of(table)
