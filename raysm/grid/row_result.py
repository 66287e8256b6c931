"""What one row of a grid has left, wherever its job ran, alone or shared: a key flows in, files flow out."""

from pathlib import Path
from typing import Any

from raysm.client.job import attach
from raysm.client.service import Service
from raysm.client.storage import Storage
from raysm.contract.result import MODEL
from raysm.errors import InvalidRequest
from raysm.grid.attempt import Attempt, TaskState
from raysm.grid.classify import brief
from raysm.grid.row_folders import row_uri
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
        Of a row that had its job alone what the job's ``result`` returns; of one that shared it, the folder of the
        files that its program wrote into $SM_MODEL_DIR.

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
    if not last.pack:
        return attach(last.name, in_region).result(to=to)
    return _brought(store, record.task.key_hash, last, in_region, to)


def _brought(store: Store, row: str, attempt: Attempt, service: Service, to: Path | None) -> Path:
    if to is not None and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InvalidRequest(f"{to} is a file or a folder that is not empty; name an empty or new folder")
    folder = to if to is not None else service.home / "results" / attempt.name / row
    folder.mkdir(parents=True, exist_ok=True)
    storage = Storage(service)
    files = row_uri(service.places.root, store.grid().prefix, attempt.pack, row)
    for item in storage.folder(f"{files}/{MODEL}"):
        # What was brought before is there, whole: files of a row that is done do not change.
        if not (folder / item.name).is_file():
            storage.bring(item, folder)
    return folder
