"""The result of one row of a grid."""

from pathlib import Path
from typing import Any

from raysm.client.job.handle import attach
from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.classify import brief
from raysm.grid.store import Store

__all__ = ["row_result"]


def row_result(store: Store, key: str, service: Service, to: Path | None = None) -> Any:
    """Return the result of a row that is done.

    Args:
        store: The grid's.
        key: Of the row.
        service: Of the grid's target, in any region.
        to: A folder for its files; None is where they lie already, or a folder below raysm's home.

    Returns:
        What ``Job.result`` returns for its last job.

    Raises:
        InvalidRequest: There is no such row, it is not done, or ``to`` holds something.
        ServiceError: The region does not answer.
    """
    # A row that was skipped is done, and has no job here: another grid has its result.
    record, attempts = store.task(key), store.attempts(key)
    if record.state is not TaskState.DONE or not attempts:
        why = f": {brief(record.reason)}" if record.reason else ""
        raise InvalidRequest(f"the row {key!r} has no result: it is {record.state.value}{why}")
    last = attempts[-1]
    # The embedded SageMaker plays the regions that it is told of, and who asks for a row need not name them all.
    in_region = service.at(service.target.reaching((last.region,)).in_region(last.region))
    return attach(last.name, in_region).result(to=to)
