"""A copy of a job's metrics and parameters in MLflow.

The client writes it into a file on its machine, the head to a server. A process that starts again continues where the
run ends: values that the run has are not written again. If the server does not answer, values are kept and sent later.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from raysm.contract.events import Metric
from raysm.request.external import place_of

End: TypeAlias = Literal["FINISHED", "FAILED", "KILLED"]
"""How MLflow says that a run ended."""

Value: TypeAlias = tuple[str, float, int, int]
"""A metric's name, value, time in milliseconds since the epoch, and step: what makes a value of MLflow's the same."""

JOB_TAG = "raysm.job"
"""Of a run: the job that it is the copy of."""

ILLEGAL = re.compile(r"[^A-Za-z0-9_\-. :/]")
"""In MLflow's names of parameters and metrics."""

MOST_NAME = 250
MOST_VALUE = 500
MOST_METRICS = 1000
MOST_PARAMS = 100
"""Characters of a name and of a parameter, and how many of both one call of MLflow takes
(https://mlflow.org/docs/latest/api_reference/rest-api.html#log-batch)."""

PAUSE_S = 5.0
"""Seconds between two calls: a step of a training may take milliseconds."""

LATER_S = 30.0
"""Seconds before a server that failed is tried again."""

LAST_S = 1.0
"""Seconds between two tries once the job has ended."""

REQUEST_S = 10
RETRIES = 1
"""Of one request to a server. MLflow's own patience is of minutes, with which nothing could be tried again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MlflowRun:
    """What a run is called, and what it knows from its begin."""

    uri: str
    """The place: ``sqlite:///…``, ``http://…``, an ARN."""
    experiment: str
    """The project of the job's task."""
    job: str
    """The job's name, which is the run's."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What the workload was called with, by name."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """More of the run's tags."""


class Numbering:
    """Turns a job's own metrics, given all of them in their order, into values as MLflow has them.

    MLflow wants a step of each: of a metric that has none it is the number of the value, so that it is the same each
    time that a log is read.
    """

    def __init__(self) -> None:
        """Begin before the first one."""
        self._counts: dict[str, int] = {}

    def value(self, metric: Metric) -> Value | None:
        """Return the value of the next metric; None of one of an instance."""
        if metric.host:
            return None
        number = self._counts.get(metric.name, 0)
        self._counts[metric.name] = number + 1
        step = number if metric.step is None else metric.step
        return _name(metric.name), metric.value, int(metric.time_s * 1000), step


def _name(name: str) -> str:
    return ILLEGAL.sub("_", name)[:MOST_NAME]


class Mirror:
    """Writes one job's run in a thread, a few times a minute; may be used from any thread, and never raises.

    Attributes:
        missing: How many values have not been written yet.
    """

    def __init__(
        self,
        run: MlflowRun,
        *,
        say: Callable[[str], None],
        pause_s: float = PAUSE_S,
        later_s: float = LATER_S,
        place: "Place | None" = None,
    ) -> None:
        """Begin.

        Args:
            run: What is written, and where.
            say: Is told once where the place cannot be written.
            pause_s: Seconds between two calls.
            later_s: Seconds before it is tried again after a failure.
            place: Where it is written; None is what the run says.
        """
        self._run, self._say, self._pause_s, self._later_s = run, say, pause_s, later_s
        self._lock = threading.Lock()
        self._waiting: list[Value] = []
        self._numbering = Numbering()
        self._ending = threading.Event()
        self._end: End | None = None
        self._deadline_s = 0.0
        self._has_said = False
        self._place: Place = _MlflowPlace(run) if place is None else place
        self._thread = threading.Thread(target=self._work, name=f"mirror of {run.job}", daemon=True)
        self._thread.start()

    @property
    def missing(self) -> int:
        """How many values have not been written yet."""
        with self._lock:
            return len(self._waiting)

    def add(self, metric: Metric) -> None:
        """Take the job's next metric; those of instances are left out."""
        value = self._numbering.value(metric)
        if value is not None:
            with self._lock:
                self._waiting.append(value)

    def close(self, end: End, within_s: float) -> bool:
        """Write what is missing, and how the run ended; return whether all of it is there.

        Args:
            end: How the job ended.
            within_s: Seconds after which it is given up.
        """
        self._deadline_s = time.monotonic() + within_s
        self._end = end
        self._ending.set()
        self._thread.join(within_s + REQUEST_S)
        if self._place.is_closed:
            return True
        self._say(f"{self.missing:,} values of {self._run.job} are not in {self._run.uri}, which cannot be written")
        return False

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
                # For what is missing at the end of the job there is no later.
                time.sleep(LAST_S)

    def _try(self, end: End | None) -> bool:
        with self._lock:
            batch = list(self._waiting)
        try:
            self._place.write(batch)
            with self._lock:
                # What came meanwhile stands behind it.
                del self._waiting[: len(batch)]
            if end is not None:
                self._place.close(end)
        except Exception as error:  # MLflow raises what its stores raise; no metric is worth a job
            if not self._has_said:
                self._has_said = True
                self._say(f"metrics cannot be mirrored to {self._run.uri} just now, the job goes on: {_short(error)}")
            return False
        return True


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


class Place(Protocol):
    """Where one run is written; used by one thread."""

    is_closed: bool
    """Whether it is told how the run ended."""

    def write(self, values: list[Value]) -> None:
        """Write those that are not there; raises what it likes."""

    def close(self, end: End) -> None:
        """Say how the run ended."""


class _MlflowPlace:
    """The run as it is in MLflow, and what is there of it."""

    def __init__(self, run: MlflowRun) -> None:
        self.is_closed = False
        self._run = run
        self._client: Any = None
        self._id = ""
        self._there: set[Value] = set()

    def write(self, values: list[Value]) -> None:
        """Write those that are not there."""
        if not self._id:
            self._open()
        from mlflow.entities import Metric as Entity

        new = [value for value in dict.fromkeys(values) if value not in self._there]
        for begin in range(0, len(new), MOST_METRICS):
            batch = new[begin : begin + MOST_METRICS]
            self._client.log_batch(self._id, metrics=[Entity(*value) for value in batch])
            self._there.update(batch)

    def close(self, end: End) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._id, status=end)
        self.is_closed = True

    def _open(self) -> None:
        self._client = _client(self._run.uri)
        experiment = self._experiment()
        runs = self._client.search_runs(
            [experiment], filter_string=f"tags.`{JOB_TAG}` = '{self._run.job}'", max_results=1
        ) or self._client.search_runs(
            # The service makes a run of that name itself where it was told of the place.
            [experiment],
            filter_string=f"attributes.run_name = '{self._run.job}'",
            max_results=1,
        )
        tags = {**self._run.tags, JOB_TAG: self._run.job}
        if runs:
            run = runs[0]
            self._client.set_tag(run.info.run_id, JOB_TAG, self._run.job)
        else:
            run = self._client.create_run(experiment, run_name=self._run.job, tags=tags)
        self._there = {
            (point.key, point.value, point.timestamp, point.step)
            for name in run.data.metrics
            for point in self._client.get_metric_history(run.info.run_id, name)
        }
        self._log_parameters(run)
        self._id = run.info.run_id

    def _experiment(self) -> str:
        """Return the ID of the experiment, which is made where it is not there."""
        experiment = self._client.get_experiment_by_name(self._run.experiment)
        if experiment is not None:
            return str(experiment.experiment_id)
        try:
            return str(self._client.create_experiment(self._run.experiment))
        except Exception:
            # Another job of the project made it meanwhile.
            experiment = self._client.get_experiment_by_name(self._run.experiment)
            if experiment is None:
                raise
            return str(experiment.experiment_id)

    def _log_parameters(self, run: Any) -> None:
        from mlflow.entities import Param

        # MLflow refuses to change one.
        new = {_name(name): str(value)[:MOST_VALUE] for name, value in self._run.parameters.items()}
        params = [Param(name, value) for name, value in new.items() if name not in run.data.params]
        for begin in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(run.info.run_id, params=params[begin : begin + MOST_PARAMS])


def _client(uri: str) -> Any:
    from mlflow import MlflowClient, environment_variables, set_tracking_uri

    with contextlib.suppress(AttributeError):  # of another version of MLflow, its own patience holds
        patience: Any = environment_variables
        patience.MLFLOW_HTTP_REQUEST_TIMEOUT.set(REQUEST_S)
        patience.MLFLOW_HTTP_REQUEST_MAX_RETRIES.set(RETRIES)
    if place_of(uri).is_of_service:
        # AWS's plugin takes the ARN that it puts into each call's header from the process's own setting. Only the head
        # writes there, from a process that is ours; in the user's that setting is the user's.
        set_tracking_uri(uri)
    # The registry too: without it, an address of a server of others may be asked for one.
    return MlflowClient(tracking_uri=uri, registry_uri=uri)
