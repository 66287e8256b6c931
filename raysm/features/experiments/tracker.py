"""The copy of a job's metrics in an MLflow file, written by the process that follows the job.

The job's tag names the file, so any process that waits for the job completes the copy: if the
program ended before its job, the next ``raysm.attach(name).wait()`` does.
"""

import contextlib
import fcntl
import importlib.util
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysm.core.client.job import records
from raysm.core.client.job.chain import Chain
from raysm.core.client.job.description import Status
from raysm.core.client.logs.stream import JobStream
from raysm.core.client.storage.s3 import Storage
from raysm.core.protocol.events import parse
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.names import PROJECT_TAG, TASK_TAG, TRACKING_TAG
from raysm.core.request import Local, Target
from raysm.core.request.external import SQLITE, place_of
from raysm.errors import InvalidRequest, MissingDependency, RaysmError
from raysm.features.experiments.mirror import End, Mirror, MlflowRun

ENDS: dict[Status, End] = {
    Status.COMPLETED: "FINISHED",
    Status.FAILED: "FAILED",
    Status.STOPPED: "KILLED",
}
LAST_S = 60.0
"""Seconds to write the last values: importing MLflow and creating its tables took 12 s on a busy
machine."""

_log = logging.getLogger("raysm")

_lock = threading.Lock()
_trackers: dict[tuple[str, str], "Tracker"] = {}
"""The trackers of this process by file and first job: two handles on one job share one."""


class Tracker:
    def __init__(self, chain: Chain, uri: str, parameters: Mapping[str, Any] | None) -> None:
        self.uri = uri
        # A cursor of its own: the handle's belongs to the handle's user.
        self._chain = Chain(chain.name, service=chain.service, api=chain.api, tags=chain.tags)
        self._parameters = parameters
        self._thread = threading.Thread(
            target=self._copy, name=f"tracker of {chain.first}", daemon=True
        )
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _copy(self) -> None:
        chain = self._chain
        try:
            lock = private_folder(chain.service.home, "tracking") / f"{chain.first}.lock"
            # Only one of several processes that follow the job writes at a time; the next one adds
            # what is missing. Without the lock each would create a run. The kernel releases it,
            # however this process ends.
            with lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                mirror = Mirror(self._run(), say=_log.warning)
                stream = JobStream(chain)
                for line in stream.follow():
                    for metric in stream.metrics(line, parse(line.text)):
                        mirror.add(metric)
                mirror.close(ENDS.get(chain.known().status, "FAILED"), LAST_S)
        except (RaysmError, OSError) as error:
            _log.warning("the copy of %s in %s is incomplete: %s", chain.first, self.uri, error)

    def _run(self) -> MlflowRun:
        chain = self._chain
        project = self._chain.tags.get(PROJECT_TAG, "default")
        parameters = self._parameters
        if parameters is None:
            prefix = chain.service.places.records(project, chain.tags.get(TASK_TAG, ""))
            record = records.of_job(chain.first, prefix, Storage(chain.service))
            parameters = {} if record is None else record.parameters
        return MlflowRun(uri=self.uri, experiment=project, job=chain.first, parameters=parameters)


def get_tracker(chain: Chain, parameters: Mapping[str, Any] | None = None) -> Tracker | None:
    """Return the tracker of a job, started if this process has none.

    Return None if the job is not copied to this machine. If the ``parameters`` of the workload are
    None, its record has them.
    """
    uri = chain.tags.get(TRACKING_TAG)
    # Others may change a tag: MLflow would connect to any server that it names.
    if uri is None or not SQLITE.form.fullmatch(uri):
        return None
    with _lock:
        key = (uri, chain.first)
        if key not in _trackers:
            _trackers[key] = Tracker(chain, uri, parameters)
        return _trackers[key]


def complete_copy(chain: Chain, within_s: float = LAST_S) -> None:
    """Wait until the copy of a job that has ended is complete.

    Warn after ``within_s`` seconds, and never raise.
    """
    with contextlib.suppress(RaysmError):
        tracker = get_tracker(chain)
        if tracker is not None and not tracker.wait(within_s + chain.service.polling.late_s):
            text = "the copy of %s in %s is incomplete so far: raysm.attach(%r).wait() completes it"
            _log.warning(text, chain.first, tracker.uri, chain.first)


def resolve_uri(tracking: str, *, on: Target) -> str:
    place = place_of(tracking)
    if place.is_of_service and isinstance(on, Local):
        raise InvalidRequest(
            f"tracking={tracking!r} is managed MLflow, which only AWS has: for jobs on this "
            "machine give a file, "
            "'sqlite:///mlflow.db', or the address of an MLflow server"
        )
    if not place.is_here:
        return tracking
    # mlflow-skinny, which other packages bring, lacks SQLAlchemy and can write to servers only.
    if importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("sqlalchemy") is None:
        raise MissingDependency(
            "tracking in a file needs MLflow: python3 -m pip install 'raysm[mlflow]'"
        )
    path = Path(tracking.removeprefix("sqlite:///")).expanduser().absolute()
    # Without the folder MLflow would try for many minutes to open the file.
    if not path.parent.is_dir():
        raise InvalidRequest(
            f"tracking: there is no folder {path.parent} for MLflow's file; make it first"
        )
    whole = f"sqlite:///{path}"
    place_of(whole)
    return whole
