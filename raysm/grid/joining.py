"""Rows that join a grid that there is: a source flows in, and those of its rows that are new wait in the store.

The daily query: it is run again, campaigns that came since become rows, and those that the grid has stay as they are,
done or not. Whoever runs the grid finds them at its next step; a grid that was over is open again.
"""

import json
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


def extend(store: Store, source: Source | None = None, *, max_rows: int = MAX_ROWS) -> int:
    """Have the rows of a source join a grid that are new to it; return how many they are.

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
        raise InvalidRequest(f"the grid {grid.name!r} is being stopped, and takes no further rows; wait for its end")
    table = (source or source_again(json.loads(grid.source))).read(max_rows)
    # As the first rows were checked: a column that was dropped since is found now, not when its first job is made.
    check_names(json.loads(grid.template), [*table.columns, *GIVEN], table.origin)
    return join(store, tasks_of(table))


def join(store: Store, tasks: Iterable[Task]) -> int:
    """Have tasks join a grid where their keys are new; return how many those are."""
    options = json.loads(store.grid().template).get("options", {})
    limits = from_json(Limits, options.get("limits") or {}, "limits")
    # Said by each row from here on, so that the budget counts with the limit that the service holds it to.
    return store.add(replace(task, max_runtime_s=task.max_runtime_s or limits.max_runtime_s) for task in tasks)
