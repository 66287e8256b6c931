"""A grid as the user asks for it, and how its rows join the store of an existing grid."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from raysm.errors import InvalidRequest
from raysm.grid.filling import GIVEN, Template
from raysm.grid.rows.columns import REGION, tasks_of
from raysm.grid.rows.source import MAX_ROWS, Source, source_again
from raysm.grid.rows.template import check_names
from raysm.grid.rules import Rules
from raysm.grid.store import Store, path_of
from raysm.grid.task import Task
from raysm.request import Limits
from raysm.request.codec import from_json

__all__ = ["GridRequest", "extend", "join"]


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


MAX_NAMED = 20
"""Rows named in one warning: of 10,000 corrected rows the first ones show what has changed."""

_log = logging.getLogger("raysm")


def extend(store: Store, source: Source | None = None, *, max_rows: int = MAX_ROWS) -> int:
    """Add the rows of a source that are new to a grid and take over corrected values; return how many rows are new.

    Args:
        store: The grid's.
        source: Where they come from; None is where the grid's own rows came from.
        max_rows: More in the source are refused, those that are known among them.

    Raises:
        InvalidRequest: The source cannot be read, or is not kept; a row lacks what the grid's template takes; or the
            grid is being stopped.
    """
    grid = store.grid()
    if grid.state == "stopping":
        raise InvalidRequest(f"the grid {grid.name!r} is being stopped and takes no new rows; wait until it is closed")
    table = (source or source_again(json.loads(grid.source))).read(max_rows)
    # As the first rows were checked: a column that was dropped since is found now, not when its first job is made.
    check_names(json.loads(grid.template), [*table.columns, *GIVEN], table.origin)
    return join(store, tasks_of(table))


def join(store: Store, tasks: Iterable[Task]) -> int:
    """Add the tasks whose keys are new, and compare the others with what is recorded; return how many are new.

    Rows that are not done take the values of the source, except rows with an open job. Each row that differs is named
    in a warning; a row that is done or has an open job also says so in its reason.
    """
    options = json.loads(store.grid().template).get("options", {})
    limits = from_json(Limits, options.get("limits") or {}, "limits")
    # Said by each row from here on, so that the budget counts with the limit that the service holds it to.
    rows = [replace(task, max_runtime_s=task.max_runtime_s or limits.max_runtime_s) for task in tasks]
    added = store.add(rows)
    if added < len(rows):
        differing = store.correct(rows)
        for each in differing[:MAX_NAMED]:
            _log.warning("row %s", each)
        if len(differing) > MAX_NAMED:
            _log.warning("%s more rows differ from the source; raysm grid rows lists them", len(differing) - MAX_NAMED)
    return added
