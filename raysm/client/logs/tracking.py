"""The copy of a job's metrics in an MLflow file of this machine, written by the process that follows the job.

The job's tag names the file, so that any process that waits for the job completes the copy: if the program ended before
its job, the next ``raysm.attach(name).wait()`` does.
"""

import contextlib
import fcntl
import importlib.util
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raysm.client.job import records
from raysm.client.job.chain import Chain
from raysm.client.job.description import Status
from raysm.client.logs.stream import JobStream
from raysm.client.storage.s3 import Storage
from raysm.contract.events import Metric, parse
from raysm.contract.mirror import End, Mirror, MlflowRun
from raysm.contract.names import PROJECT_TAG, TASK_TAG, TRACKING_TAG
from raysm.errors import InvalidRequest, MissingDependency, RaysmError
from raysm.request import Local, Target
from raysm.request.external import place_of

__all__ = ["Tracker", "absolute_place", "complete", "tracker_of"]

ENDS: dict[Status, End] = {Status.COMPLETED: "FINISHED", Status.FAILED: "FAILED", Status.STOPPED: "KILLED"}

# Of a short job all are the last ones: MLflow's import and its tables come first, 12 s on a machine with other work.
LAST_S = 60.0
"""Seconds for which the last values are tried to be written."""

_log = logging.getLogger("raysm")

_lock = threading.Lock()
_running: dict[tuple[str, str], "Tracker"] = {}
"""Of this process, by place and first job: of two handles on one job one writes."""


class Tracker:
    """Copies one job's metrics in a thread, from its first line on."""

    def __init__(self, chain: Chain, uri: str, parameters: Mapping[str, Any] | None) -> None:
        """Begin.

        Args:
            chain: The job.
            uri: Of MLflow's file.
            parameters: What its workload was called with; None is what its record says.
        """
        self.uri = uri
        # A cursor of its own: the handle's belongs to the handle's user.
        self._chain = Chain(chain.name, service=chain.service, api=chain.api, tags=chain.tags)
        self._parameters = parameters
        self._thread = threading.Thread(target=self._copy, name=f"tracker of {chain.first}", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all is written; return whether that was within ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _copy(self) -> None:
        try:
            # Of several processes that follow the job one writes, and the next one adds what it has left out: else
            # each would make a run of its own.
            with _alone(self._chain.service.home / "tracking" / f"{self._chain.first}.lock"):
                self._follow()
        except (RaysmError, OSError) as error:
            _log.warning("the copy of %s in %s is not whole: %s", self._chain.first, self.uri, error)

    def _follow(self) -> None:
        mirror = Mirror(self._run(), say=_log.warning)
        for line in JobStream(self._chain).follow():
            match parse(line.text):
                case Metric() as metric:
                    mirror.add(metric)
        mirror.close(ENDS.get(self._chain.known().status, "FAILED"), LAST_S)

    def _run(self) -> MlflowRun:
        chain, project = self._chain, self._chain.tags.get(PROJECT_TAG, "default")
        parameters = self._parameters
        if parameters is None:
            prefix = chain.service.places.records(project, chain.tags.get(TASK_TAG, ""))
            record = records.of_job(chain.first, prefix, Storage(chain.service))
            parameters = {} if record is None else record.parameters
        return MlflowRun(uri=self.uri, experiment=project, job=chain.first, parameters=parameters)


def tracker_of(chain: Chain, parameters: Mapping[str, Any] | None = None) -> Tracker | None:
    """Return the tracker of a job, started if this process has none; None of a job that is not copied to this machine.

    Args:
        chain: The job.
        parameters: What its workload was called with; None is what its record says.
    """
    uri = chain.tags.get(TRACKING_TAG)
    if uri is None:
        return None
    with _lock:
        key = (uri, chain.first)
        if key not in _running:
            _running[key] = Tracker(chain, uri, parameters)
        return _running[key]


def complete(chain: Chain, within_s: float = LAST_S) -> None:
    """Wait until the copy of a job that has ended is whole, where it is copied to this machine; never raise.

    Args:
        chain: The job.
        within_s: Seconds after which it is said that the copy is not whole.
    """
    with contextlib.suppress(RaysmError):
        tracker = tracker_of(chain)
        if tracker is not None and not tracker.wait(within_s + chain.service.polling.late_s):
            _log.warning(
                "the copy of %s in %s is not whole yet: raysm.attach(%r).wait() completes it",
                chain.first,
                tracker.uri,
                chain.first,
            )


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        # Released by the kernel, however this process ends.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def absolute_place(tracking: str, *, on: Target) -> str:
    """Return where metrics are copied to, of a file by its whole path: another program has another working folder.

    Args:
        tracking: As the user gives it.
        on: Where the job is sent.

    Raises:
        InvalidRequest: It is no such place, there is no such folder, or the target does not have it.
        MissingDependency: It is a file of this machine, which MLflow writes, and that is not installed.
    """
    if place_of(tracking).is_of_service and isinstance(on, Local):
        raise InvalidRequest(
            f"tracking={tracking!r} is managed MLflow, which only AWS has: for jobs on this machine give a file, "
            "'sqlite:///mlflow.db', or the address of an MLflow server"
        )
    if not place_of(tracking).is_here:
        return tracking
    _check_here()
    path = Path(tracking.removeprefix("sqlite:///")).expanduser().absolute()
    # Told now: MLflow would try for many minutes to open it.
    if not path.parent.is_dir():
        raise InvalidRequest(f"tracking: there is no folder {path.parent} for MLflow's file; make it first")
    whole = f"sqlite:///{path}"
    place_of(whole)
    return whole


def _check_here() -> None:
    """Refuse where this machine cannot write MLflow's file.

    Raises:
        MissingDependency: MLflow, or what it needs for a file, is not installed.
    """
    # mlflow-skinny, which others bring, has no SQLAlchemy, and can write to servers only.
    if importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("sqlalchemy") is None:
        raise MissingDependency("tracking in a file needs MLflow: python3 -m pip install 'raysm[mlflow]'")
