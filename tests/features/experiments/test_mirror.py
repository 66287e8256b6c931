"""One job's metrics mirrored into a run of the real MLflow."""

import math
import shutil
import subprocess
import sys
import threading

import pytest

from raysm.core.protocol.events import Metric
from raysm.features.experiments.mirror import Mirror, MlflowRun

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's own, of its dependencies

WITHIN_S = 120


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A file of MLflow's without runs: to make one takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def place(empty, tmp_path):
    return f"sqlite:///{shutil.copy(empty, tmp_path / 'mlflow.db')}"


class Said:
    """Keeps what it is told, and tells when that is something."""

    def __init__(self):
        self.texts, self.something = [], threading.Event()

    def __call__(self, text):
        self.texts.append(text)
        self.something.set()


def run_of(place, **fields):
    return MlflowRun(
        **(
            {"uri": place, "experiment": "digits", "job": "digits-1", "parameters": {"lr": 0.1}}
            | fields
        )
    )


def mirrored(place, metrics, end="FINISHED", **fields):
    mirror = Mirror(run_of(place, **fields), say=Said(), pause_s=0.05, later_s=0.05)
    for metric in metrics:
        mirror.add(metric)
    assert mirror.close(end, WITHIN_S)


def runs(place, experiment="digits"):
    client = mlflow.MlflowClient(place)
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def history(place, run, name):
    points = mlflow.MlflowClient(place).get_metric_history(run.info.run_id, name)
    return sorted((point.step, point.timestamp, point.value) for point in points)


LOSSES = [
    Metric(name="loss", value=1 / (step + 1), step=step, time_s=1_800_000_000.25 + step)
    for step in range(20)
]


def test_a_run_has_the_jobs_name_parameters_metrics_and_end(place):
    mirrored(place, [*LOSSES, Metric(name="cpu_percent", value=5, host="algo-1")], "FAILED")
    (run,) = runs(place)
    assert (run.info.run_name, run.info.status, run.data.params) == (
        "digits-1",
        "FAILED",
        {"lr": "0.1"},
    )
    assert history(place, run, "loss") == [
        (one.step, int(one.time_s * 1000), one.value) for one in LOSSES
    ]
    assert set(run.data.metrics) == {"loss"}


def test_what_is_written_twice_is_there_once(place):
    rates = [Metric(name="rate", value=5.0, time_s=1_800_000_000.0 + at) for at in range(5)]
    mirrored(place, [*LOSSES[:12], *rates[:2]])
    mirrored(place, [*LOSSES, *rates], parameters={"lr": 0.1, "depth": 3})
    (run,) = runs(place)
    assert len(history(place, run, "loss")) == len(LOSSES)
    assert [step for step, *_ in history(place, run, "rate")] == [0, 1, 2, 3, 4]
    assert run.data.params == {"lr": "0.1", "depth": "3"}


def test_values_that_are_not_finite_are_there_once_too(place):
    values = [
        Metric(name="loss", value=value, step=step, time_s=1_800_000_000.0 + step)
        for step, value in enumerate([0.5, math.nan, math.inf, -math.inf])
    ]
    mirrored(place, values)
    mirrored(place, values)
    (run,) = runs(place)
    found = [value for _, _, value in history(place, run, "loss")]
    assert [found[0], *map(math.isnan, found[1:2])] == [0.5, True]
    assert [abs(value) for value in found[2:]] == [
        sys.float_info.max
    ] * 2  # as MLflow stores infinities


def test_a_run_that_the_service_has_made_for_the_job_is_taken(place):
    client = mlflow.MlflowClient(place)
    made = client.create_run(client.create_experiment("digits"), run_name="digits-1")
    mirrored(place, LOSSES)
    assert [run.info.run_id for run in runs(place)] == [made.info.run_id]


class Flaky:
    """A place that is down until it is told otherwise, and keeps what is written then."""

    def __init__(self):
        self.is_up, self.values, self.tries = False, [], threading.Semaphore(0)

    def write(self, values):
        self.tries.release()
        if not self.is_up:
            raise ConnectionError("refused\nand much more")
        self.values += values

    def close(self, end):
        pass


def test_a_place_that_is_down_is_said_once_and_made_up_for():
    place, said = Flaky(), Said()
    mirror = Mirror(run_of("http://away"), say=said, pause_s=0.01, later_s=0.01, place=place)
    for metric in LOSSES:
        mirror.add(metric)
    for _ in range(5):
        assert place.tries.acquire(timeout=WITHIN_S)
    assert mirror.missing == len(LOSSES)
    place.is_up = True
    assert mirror.close("FINISHED", WITHIN_S)
    assert said.texts == [
        "metrics cannot be mirrored to http://away just now, the job goes on: ConnectionError: refused"
    ]
    assert [step for *_, step in place.values] == list(range(len(LOSSES)))
    assert mirror.missing == 0


def test_without_mlflow_the_job_goes_on_and_it_is_said(tmp_path):
    (tmp_path / "mlflow.py").write_text("raise ImportError('no mlflow')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from raysm.features.experiments.mirror import MlflowRun, Mirror\n"
        "mirror = Mirror(MlflowRun(uri='http://x', experiment='e', job='j'), say=print, pause_s=0.01)\n"
        "assert not mirror.close('FINISHED', 1.0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the job goes on: ImportError: no mlflow" in ended.stdout
