"""The rows of a grid as rows of the table of experiments: a store flows in, Experiments flow out, the latest job first.

No job is read for it: a thousand of them in four regions would take minutes, and the store has what the table shows.
"""

import json
from collections.abc import Mapping

from raysm.client.experiments.experiment import Experiment, Summary, Value
from raysm.client.job.description import Status
from raysm.grid.attempt import TaskState
from raysm.grid.row import GridRow, rows_of
from raysm.grid.store import Store

__all__ = ["experiments_of"]

STATUS = {
    TaskState.DONE: Status.COMPLETED,
    TaskState.FAILED: Status.FAILED,
    TaskState.STOPPED: Status.STOPPED,
    TaskState.PLACED: Status.IN_PROGRESS,
    # Its last job failed, and it is tried again.
    TaskState.WAITING: Status.FAILED,
}
"""How the last job of a row is, by the row's own state."""


def experiments_of(store: Store) -> list[Experiment]:
    """Return the last job of each row that has one, with the row's parameters, its place, and all of its dollars."""
    grid = store.grid()
    workload = json.loads(grid.template).get("workload", {}).get("kind")
    rows = [_experiment(row, grid.name, workload, grid.rules.rate) for row in rows_of(store) if row.sent_s is not None]
    return sorted(rows, key=lambda row: -row.created_s)


def _experiment(row: GridRow, grid: str, workload: str | None, rate: str | None) -> Experiment:
    return Experiment(
        name=row.job or "",
        # Which account it is, the store does not know; by its name and region it is found.
        arn="",
        kind="training",
        status=STATUS.get(row.state, Status.UNKNOWN),
        message=row.reason,
        project=grid,
        task=row.key,
        workload=workload,
        parameters=_parameters(row),
        metrics=_metrics(row, rate),
        instances=((row.instance_type or "", row.count or 1),),
        created_s=row.sent_s or 0.0,
        started_s=row.started_s,
        ended_s=row.ended_s,
        cost_usd=row.usd,
    )


def _parameters(row: GridRow) -> Mapping[str, Value]:
    # The user's own column of the name, which a template may take, is what the user means by it.
    return {"row": row.key, "region": row.region, "spot": row.spot, **row.parameters}


def _metrics(row: GridRow, rate: str | None) -> Mapping[str, Summary]:
    if rate is None or row.rate is None:
        return {}
    return {rate: Summary(last=row.rate, lowest=row.rate, highest=row.rate, count=1)}
