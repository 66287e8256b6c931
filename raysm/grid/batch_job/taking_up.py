"""In the Batch job: a grid that was handed over flows in by its URI, the controller that goes on with it flows out.

Each attempt begins with nothing: it reads what it is told, and takes up the grid's record from S3, whoever had it
before. So it makes no difference whether the attempt before was the first one, and how it was lost.
"""

import contextlib
import functools
from pathlib import Path

from raysm.client.service import Service
from raysm.client.storage.s3 import Storage
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.batch_job.handover import unpack
from raysm.grid.planning import Known
from raysm.grid.running import Running, open_running
from raysm.grid.sending_rows import Services
from raysm.grid.shared.sharing import copied, objects_of

__all__ = ["NOT_ALL_DONE", "REFUSED", "exit_code", "take_up"]

REFUSED = 2
"""Exit code of a command that asks for what cannot be."""

NOT_ALL_DONE = 3
"""Exit code of a controller whose grid is over, or waits for a person, and has rows that nobody stopped and that are
not done."""

WELL = {TaskState.DONE, TaskState.SKIPPED, TaskState.STOPPED}


def take_up(uri: str, service: Service, folder: Path, services: Services = Service) -> Running:
    """Go on with a grid that was handed over; its lease is taken.

    Args:
        uri: Of what was handed over.
        service: By which it is read.
        folder: Empty; the grid's file and the user's files lie there.
        services: How the grid's own target is reached.

    Raises:
        InvalidPayload: It is not as it was written.
        InvalidRequest: It is not there, or of another raysm.
        LeaseLost: Another controller runs the grid.
        ServiceError: S3 does not answer.
    """
    bundle = Storage(service).read(uri)
    if bundle is None:
        raise InvalidRequest(f"there is nothing at {uri}; raysm grid run --via batch hands a grid over, and names it")
    handover = unpack(bundle, uri, folder)
    # One of each target: the record is read by the very clients that the controller goes on with.
    services = functools.lru_cache(services)
    copy = copied(objects_of(handover.name, services(handover.target)), handover.name)
    with contextlib.closing(copy.database):
        rules, tasks = copy.grid().rules, [record.task for record in copy.tasks()]
    # Quotas are in the record; a place that refused since then has told its own.
    facts = Known(prices=handover.price_table, quotas={}, own_region=handover.own_region)
    return open_running(
        handover.request(folder, rules), tasks, facts, services, planned_usd=handover.planned_usd, root=folder
    )


def exit_code(running: Running) -> int:
    """Return what the program of a controller ends with, once its grid is over or paused."""
    # Not by its rows: those of a paused grid still wait.
    if running.store.grid().state == "paused":
        return NOT_ALL_DONE
    return 0 if set(running.store.states()) <= WELL else NOT_ALL_DONE
