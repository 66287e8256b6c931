"""What the driver leaves of its failure: where it lies until the head knows whether it is the job's.

The driver writes into a private folder of the head, and says what happened to it; only the head knows what happened
first. So the driver's word becomes an output of the job, which the client reads, once it is the reason, and else never.
"""

import contextlib
from pathlib import Path

from raysm.contract.result import EXCEPTION, FAILURE, Failure
from raysm.contract.store import put
from raysm.errors import InstanceLost, InvalidConfig, InvalidRequest, RayFailed

__all__ = ["blames_cluster", "exception_beside", "publish", "read"]


def exception_beside(record: Path) -> Path:
    """Return where the exception of a function lies, pickled, whose failure is recorded in ``record``."""
    return record.with_name(Path(EXCEPTION).name)


def read(record: Path) -> Failure | None:
    """Return the failure that the driver has recorded; None where there is none that can be read."""
    with contextlib.suppress(InvalidConfig, InvalidRequest):
        return Failure.read(record)
    return None


def blames_cluster(failure: Failure) -> bool:
    """Whether the driver says that Ray or an instance failed it, of which the bootstraps know more than it does.

    What a task raised comes as Ray's error too, but is the user's own.
    """
    kind = failure.error_type
    of_ray = kind.startswith("ray.exceptions.") and not kind.startswith("ray.exceptions.RayTaskError")
    return of_ray or kind in (InstanceLost.__name__, RayFailed.__name__)


def publish(record: Path, outputs: Path) -> None:
    """Copy the record, and the exception that may lie beside it, to where a job's outputs are."""
    for source, name in ((record, FAILURE), (exception_beside(record), EXCEPTION)):
        with contextlib.suppress(OSError):  # on a full disk the failure file and the exit code still say it
            put(outputs / name, source.read_bytes())
