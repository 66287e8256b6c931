"""Read the rows of a grid's source again: new rows are added, and corrected values replace those of rows not yet done.

A controller finds them at its next step; a grid that was closed is open again.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import replace

from raysm.errors import InvalidRequest
from raysm.grid.filling import GIVEN
from raysm.grid.rows.columns import tasks_of
from raysm.grid.rows.source import MAX_ROWS, Source, source_again
from raysm.grid.rows.template import check_names
from raysm.grid.store import Store
from raysm.grid.task import Task
from raysm.request import Limits
from raysm.request.codec import from_json

__all__ = ["extend", "join"]

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
