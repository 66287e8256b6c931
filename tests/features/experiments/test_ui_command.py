"""Jobs, trials and rows of grids in a local MLflow store, read back by MLflow's own client."""

import subprocess
import sys
import urllib.request
from dataclasses import replace

import psutil
import pytest

import raysm
from raysm.core.client.submit import prepare, submit
from raysm.core.protocol.events import Metric, SessionCall, Trial, line
from raysm.errors import RaysmError
from raysm.features.experiments.ui_command import MlflowStore, Record, open_mlflow, records
from raysm.features.script.request import Script
from raysm.features.session.request import SessionWorkload
from raysm.testing import Answer, FakeSageMaker
from tests.support.client_jobs import NOW_MS
from tests.support.experiments import FULL, row
from tests.support.homes import in_home
from tests.support.processes import is_running
from tests.support.waiting import until

MlflowClient = pytest.importorskip("mlflow").MlflowClient
pytest.importorskip("sqlalchemy")

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's own, of its dependencies

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def own_home(tmp_path):
    """A home without the grids of other tests, whose rows are runs too."""
    with in_home(tmp_path):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One store for all tests: its tables take seconds."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture
def store(folder):
    return MlflowStore(folder)


@pytest.fixture
def client(store):
    return MlflowClient(tracking_uri=store.uri)


@pytest.fixture
def train(fake, script):
    def train(*events, **options):
        fake.answer("script", Answer(lines=[line(event) for event in events]))
        return fake, submit(Script(str(script), args=["--lr", "0.1"]), on=fake, **options).name

    return train


def run_of(client, name):
    found = client.search_runs(
        [each.experiment_id for each in client.search_experiments()],
        f"attributes.run_name = '{name}'",
    )
    assert len(found) == 1
    return found[0]


def test_a_job_is_a_run_with_its_parameters_curves_times_and_commands(store, client, train):
    losses = [Metric(name="loss", value=1 / (1 + step), step=step) for step in range(5)]
    fake, name = train(*losses, Metric(name="rate", value=7.0), project="digits")
    assert store.update(records(fake)) == 1
    run = run_of(client, name)
    assert (run.info.status, run.data.params["lr"]) == ("FINISHED", "0.1")
    assert run.info.end_time >= run.info.start_time > 0
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [
        (step, 1 / (1 + step)) for step in range(5)
    ]
    assert (run.data.metrics["loss"], run.data.metrics["rate"]) == (0.2, 7.0)
    assert client.get_experiment(run.info.experiment_id).name == "digits"
    for command in ("logs", "result", "dashboard"):
        assert f"raysm {command} {name}" in run.data.tags["mlflow.note.content"]
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["job.json"]


def test_nothing_is_written_twice_and_what_the_user_changed_stays(store, client, train):
    fake, name = train(Metric(name="loss", value=0.5, step=1))
    found = records(fake)
    assert [store.update(found), store.update(found)] == [1, 0]
    run = run_of(client, name)
    client.set_tag(run.info.run_id, "mlflow.note.content", "the good one")
    client.set_tag(run.info.run_id, "mine", "yes")
    again = replace(found[0], row=replace(found[0].row, message="told later"))
    assert store.update([again]) == 1
    run = run_of(client, name)
    assert (run.data.tags["mlflow.note.content"], run.data.tags["mine"]) == ("the good one", "yes")
    assert run.data.tags["raysm.message"] == "told later"
    client.delete_run(run.info.run_id)
    store.update(found)
    assert client.get_run(run.info.run_id).info.lifecycle_stage == "deleted"


def test_a_job_that_runs_gets_its_new_values(store, client, remote, job):
    for count in (1, 2):
        event = Metric(name="loss", value=3.0 - count, step=count)
        remote.write_log(job.name, "algo-1", [(NOW_MS + count, line(event))])
        assert store.update(records(remote.service)) == 1
        run = run_of(client, job.name)
        assert run.info.status == "RUNNING"
        assert len(client.get_metric_history(run.info.run_id, "loss")) == count


def test_trials_are_runs_below_their_sweep(store, client, train):
    trials = [
        Trial(
            number=number,
            status="done",
            params={"lr": 0.1 * number},
            metrics={"loss": 1.0 / number},
        )
        for number in (1, 2)
    ]
    fake, name = train(*trials)
    assert store.update(records(fake)) == 3
    sweep, trial = run_of(client, name), run_of(client, f"{name}/2")
    assert trial.data.tags["mlflow.parentRunId"] == sweep.info.run_id
    assert (trial.data.params["lr"], trial.data.metrics["loss"]) == ("0.2", 0.5)
    assert f"raysm logs {name} " in trial.data.tags["mlflow.note.content"]


@pytest.mark.parametrize("again", [False, True])
def test_calls_of_a_session_that_report_metrics_are_runs_with_curves_of_their_own(
    store, client, fake, again
):
    metrics = [
        Metric(name="loss", value=1 / (lr + step), step=step, call=lr)
        for step in range(3)
        for lr in (1, 2)
    ]
    calls = [
        SessionCall(
            number=lr, name="train", status=status, params={"lr": lr}, seconds=2.0, reason=reason
        )
        for lr, status, reason in ((1, "done", ""), (2, "failed", "ValueError: no"))
    ]
    fake.answer("session", Answer(lines=[line(event) for event in (*metrics, *calls)]))
    job = prepare(SessionWorkload(), on=fake, name="digits").send().name
    if again:  # from the cache
        records(fake)
    assert store.update(records(fake)) == 3
    session, first, second = (run_of(client, name) for name in (job, f"{job}/1", f"{job}/2"))
    assert (session.data.metrics.get("loss"), first.data.tags["mlflow.parentRunId"]) == (
        None,
        session.info.run_id,
    )
    assert (first.info.status, second.info.status) == ("FINISHED", "FAILED")
    assert (first.data.params, second.data.tags["raysm.message"]) == (
        {"call": "train", "lr": "1"},
        "ValueError: no",
    )
    history = client.get_metric_history(second.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 0.5), (1, 1 / 3), (2, 0.25)]
    assert f"raysm session attach {job}" in first.data.tags["mlflow.note.content"]


def test_a_row_of_a_grid_and_its_job_are_one_run(store, client, fake, script, tmp_path):
    fake.answer("script", Answer(lines=[line(Metric(name="loss", value=0.5))]))
    workload = Script(str(script), args=["--lr", "{lr}"])
    raysm.Grid(workload, rows=[{"key": "a", "lr": 0.1}], name="drives", on=fake).run()
    name = fake.submitted[0].request["TrainingJobName"]
    # To another account the row is known, and its job is not.
    assert store.update(records(FakeSageMaker(tmp_path / "another"))) == 1
    assert "raysm grid result drives a " in run_of(client, name).data.tags["mlflow.note.content"]
    assert store.update(records(fake)) == 1
    run = run_of(client, name)
    assert (run.data.params["row"], run.data.params["lr"], run.data.metrics["loss"]) == (
        "a",
        "0.1",
        0.5,
    )
    assert client.get_experiment(run.info.experiment_id).name == "drives"


def test_whatever_a_job_says_is_text(store, client):
    hostile = row(
        name="hostile",
        message=HOSTILE,
        parameters={HOSTILE: HOSTILE},
        metrics={HOSTILE: FULL.metrics["loss"]},
    )
    curves = {HOSTILE: [(0, 1.0, float("nan")), (1, 2.0, float("inf"))]}
    store.update([Record(row=hostile, job="hostile", curves=lambda: curves)])
    run = run_of(client, "hostile")
    assert [*run.data.params, *run.data.metrics] == ["_script_alert_1__/script_"] * 2
    assert list(run.data.params.values()) == [HOSTILE]


@pytest.mark.long
def test_mlflows_pages_are_served_below_a_secret_path_until_the_end(store):
    store.update([])
    with open_mlflow(store) as url:
        with urllib.request.urlopen(url) as page:
            assert b"<title>MLflow</title>" in page.read()
        asked = urllib.request.Request(
            f"{url}ajax-api/2.0/mlflow/experiments/search",
            data=b'{"max_results": 5}',
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked) as answer:
            assert b"experiments" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.rpartition("/")[0].rpartition("/")[0])
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


@pytest.mark.long
def test_a_server_that_does_not_start_says_why(tmp_path):
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    with pytest.raises(RaysmError, match="not started"), open_mlflow(MlflowStore(tmp_path)):
        pass


SERVE = """
import sys, time
from pathlib import Path
from raysm.features.experiments.ui_command import MlflowStore, open_mlflow
store = MlflowStore(Path(sys.argv[1]))
store.update([])
with open_mlflow(store) as url:
    print(url, flush=True)
    time.sleep(1000)
"""


@pytest.mark.long
def test_mlflow_ends_with_a_process_that_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("http://")
        started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.kill()
        process.wait()
    assert started
    until(lambda: not any(map(is_running, started)))
