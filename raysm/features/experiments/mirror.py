"""A copy of a job's metrics and parameters in MLflow.

The client writes it into a file on its machine, the head to a server. A process that starts again
continues where the run ends: values that the run has are not written again. If the server does not
answer, values are kept and sent later.
"""

import contextlib
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from raysm.core.protocol.events import Metric
from raysm.core.request.external import place_of

End: TypeAlias = Literal["FINISHED", "FAILED", "KILLED"]
Value: TypeAlias = tuple[str, float, int, int]
"""A metric's name, value, time in milliseconds since the epoch, and step; MLflow stores equal
values once."""
JOB_TAG = "raysm.job"
ILLEGAL = re.compile(r"[^A-Za-z0-9_\-. :/]")
# https://mlflow.org/docs/latest/api_reference/rest-api.html#log-batch
MAX_NAME = 250
MAX_VALUE = 500
MAX_METRICS = 1000
MAX_PARAMS = 100
PAUSE_S = 5.0
"""Seconds between two calls, because a training may take a step every few milliseconds."""
LATER_S = 30.0
LAST_S = 1.0
REQUEST_S = 10
RETRIES = 1
"""Limits of one request to a server; with MLflow's own defaults one request could block the thread
for minutes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MlflowRun:
    uri: str
    experiment: str
    job: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Mirror:
    """Writes one job's run, every few seconds, in its own thread.

    Any thread may use it, and it never raises.
    """

    def __init__(
        self,
        run: MlflowRun,
        *,
        say: Callable[[str], None],
        pause_s: float = PAUSE_S,
        later_s: float = LATER_S,
        place: Any = None,
    ) -> None:
        self._run = run
        self._say = say
        self._pause_s = pause_s
        self._later_s = later_s
        self._lock = threading.Lock()
        self._waiting: list[Value] = []
        self._counts: dict[str, int] = {}
        self._ending = threading.Event()
        self._end: End | None = None
        self._deadline_s = 0.0
        self._has_said = self._is_closed = False
        self._place = _MlflowWriter(run) if place is None else place
        self._thread = threading.Thread(target=self._work, name=f"mirror of {run.job}", daemon=True)
        self._thread.start()

    @property
    def missing(self) -> int:
        with self._lock:
            return len(self._waiting)

    def add(self, metric: Metric) -> None:
        if metric.host:
            return
        number = self._counts.get(metric.name, 0)
        self._counts[metric.name] = number + 1
        # MLflow requires a step. Counting the values gives the same numbers whenever a log is read
        # again.
        step = number if metric.step is None else metric.step
        with self._lock:
            self._waiting.append(
                (legal_name(metric.name), metric.value, int(metric.time_s * 1000), step)
            )

    def close(self, end: End, within_s: float) -> bool:
        """Write the missing values and the final state.

        Return False if that fails for ``within_s`` seconds.
        """
        self._deadline_s = time.monotonic() + within_s
        self._end = end
        self._ending.set()
        self._thread.join(within_s + REQUEST_S)
        if not self._is_closed:
            self._say(
                f"{self.missing:,} values of {self._run.job} are not in {self._run.uri}, which "
                "cannot be written"
            )
        return self._is_closed

    def _work(self) -> None:
        pause_s = self._pause_s
        while True:
            self._ending.wait(pause_s)
            end = self._end
            is_written = self._try(end)
            if end is not None and (is_written or time.monotonic() + LAST_S > self._deadline_s):
                return
            pause_s = self._pause_s if is_written else self._later_s
            if end is not None:
                time.sleep(LAST_S)

    def _try(self, end: End | None) -> bool:
        with self._lock:
            batch = list(self._waiting)
        try:
            self._place.write(batch)
            with self._lock:
                del self._waiting[: len(batch)]
            if end is not None:
                self._place.close(end)
                self._is_closed = True
        except (
            Exception
        ) as error:  # MLflow's stores raise any exception, and a lost metric must not fail the job
            if not self._has_said:
                self._has_said = True
                text = ": ".join(
                    filter(
                        None, [type(error).__name__, str(error).strip().partition("\n")[0][:300]]
                    )
                )
                self._say(
                    f"metrics cannot be mirrored to {self._run.uri} just now, the job goes on: "
                    f"{text}"
                )
            return False
        return True


def legal_name(name: str) -> str:
    return ILLEGAL.sub("_", name)[:MAX_NAME]


def _as_stored(value: Value) -> tuple[str, float | None, int, int]:
    """Return a value as MLflow stores it: None for NaN, the largest float for infinity."""
    name, number, time_ms, step = value
    largest = sys.float_info.max
    return name, None if math.isnan(number) else max(-largest, min(largest, number)), time_ms, step


class _MlflowWriter:
    def __init__(self, run: MlflowRun) -> None:
        self._run = run
        self._client: Any = None
        self._id = ""
        self._there: set[tuple[str, float | None, int, int]] = set()

    def write(self, values: list[Value]) -> None:
        """Write the values that the run does not have yet; may raise any exception."""
        if not self._id:
            self._open()
        from mlflow.entities import Metric as Entity

        new = [
            value
            for key, value in {_as_stored(value): value for value in values}.items()
            if key not in self._there
        ]
        for begin in range(0, len(new), MAX_METRICS):
            batch = new[begin : begin + MAX_METRICS]
            self._client.log_batch(self._id, metrics=[Entity(*value) for value in batch])
            self._there.update(map(_as_stored, batch))

    def close(self, end: End) -> None:
        self._client.set_terminated(self._id, status=end)

    def _open(self) -> None:
        from mlflow.entities import Param

        client = self._client = _client(self._run.uri)
        experiment = self._experiment()
        # If the API call named the place, the service has created a run with the job's name.
        queries = (
            f"tags.`{JOB_TAG}` = '{self._run.job}'",
            f"attributes.run_name = '{self._run.job}'",
        )
        runs = (
            client.search_runs([experiment], filter_string=query, max_results=1)
            for query in queries
        )
        run = next((found[0] for found in runs if found), None)
        if run is None:
            run = client.create_run(
                experiment, run_name=self._run.job, tags={JOB_TAG: self._run.job}
            )
        else:
            client.set_tag(run.info.run_id, JOB_TAG, self._run.job)
        self._there = {
            _as_stored((point.key, point.value, point.timestamp, point.step))
            for name in run.data.metrics
            for point in client.get_metric_history(run.info.run_id, name)
        }
        # MLflow refuses to change a parameter.
        new = {
            legal_name(name): str(value)[:MAX_VALUE] for name, value in self._run.parameters.items()
        }
        params = [Param(name, value) for name, value in new.items() if name not in run.data.params]
        for begin in range(0, len(params), MAX_PARAMS):
            client.log_batch(run.info.run_id, params=params[begin : begin + MAX_PARAMS])
        self._id = run.info.run_id

    def _experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(self._run.experiment)
        if experiment is None:
            try:
                return str(self._client.create_experiment(self._run.experiment))
            except Exception:
                # Another job of the project may have created it meanwhile.
                experiment = self._client.get_experiment_by_name(self._run.experiment)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)


def _client(uri: str) -> Any:
    from mlflow import MlflowClient, environment_variables, set_tracking_uri

    with contextlib.suppress(AttributeError):  # in another version of MLflow these may not exist
        limits: Any = environment_variables
        limits.MLFLOW_HTTP_REQUEST_TIMEOUT.set(REQUEST_S)
        limits.MLFLOW_HTTP_REQUEST_MAX_RETRIES.set(RETRIES)
    if place_of(uri).is_of_service:
        # AWS's plugin reads the ARN for the headers of its calls from this global setting. This
        # runs in a process of raysm on the head, never in the user's process, so it changes no
        # setting of the user.
        set_tracking_uri(uri)
    # Without registry_uri, MLflow might connect to another server for the registry.
    return MlflowClient(tracking_uri=uri, registry_uri=uri)
