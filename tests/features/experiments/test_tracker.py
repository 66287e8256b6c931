"""The copy of a job's metrics in an MLflow file of this machine."""

import fcntl

import pytest

from raysm.core.client.job.chain import Chain
from raysm.core.client.job.handle import attach
from raysm.core.client.submit import prepare, submit
from raysm.core.protocol.events import Metric, line
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.names import TRACKING_TAG
from raysm.core.request import Local
from raysm.errors import InvalidRequest
from raysm.features.experiments.tracker import complete_copy, get_tracker, resolve_uri
from raysm.features.script.request import Script
from raysm.testing import Answer

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's own, of its dependencies

WITHIN_S = 240

METRICS = [
    *(
        Metric(name="loss", value=1 / (step + 1), step=step, time_s=1_800_000_000.0 + step)
        for step in range(10)
    ),
    *(Metric(name="rate", value=100.0 + at, time_s=1_800_000_000.0 + at) for at in range(3)),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file of MLflow, whose tables take it seconds to make."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def train(fake, script):
    """Return a function that runs a job whose metrics are copied to a file."""

    def train(tracking, **answer):
        fake.answer("script", Answer(lines=[line(metric) for metric in METRICS], **answer))
        return submit(
            Script(str(script), args=["--lr", "0.1"]), on=fake, project="digits", tracking=tracking
        )

    return train


def runs(place, project):
    client = mlflow.MlflowClient(place)
    return client.search_runs([client.get_experiment_by_name(project).experiment_id])


def test_runs_parameters_and_metrics_are_those_of_raysms_own_record(train, place):
    job = train(place)
    job.wait(WITHIN_S)
    (run,) = runs(place, "digits")
    assert (run.info.run_name, run.info.status, run.data.params) == (
        job.name,
        "FINISHED",
        {"lr": "0.1"},
    )
    client = mlflow.MlflowClient(place)
    for name in job.metrics().of_job().names:
        copied = [
            (point.timestamp, point.value)
            for point in client.get_metric_history(run.info.run_id, name)
        ]
        assert sorted(copied) == sorted(
            (int(one.time_s * 1000), one.value) for one in job.metrics(name)
        )
    # Who attaches and waits on another day writes nothing twice.
    attach(job.name, job.service).wait(WITHIN_S)
    complete_copy(job.chain)
    assert [each.data.metrics for each in runs(place, "digits")] == [run.data.metrics]


def test_a_copy_that_is_not_whole_in_time_is_told_and_completed_by_a_later_wait(
    fake, script, place, caplog
):
    (fake.home / "tracking").mkdir(parents=True)
    job = prepare(Script(str(script)), on=fake, project="late", tracking=place, job_name="late")
    with (fake.home / "tracking" / "late.lock").open("w") as another:
        # As another process that follows the job, and has not come to its end.
        fcntl.flock(another, fcntl.LOCK_EX)
        fake.answer("script", Answer(lines=[line(metric) for metric in METRICS]))
        chain = job.send().chain
        complete_copy(chain, within_s=0.1)
    assert (
        f"the copy of late in {place} is incomplete so far: raysm.attach('late').wait() completes it"
        in caplog.text
    )
    complete_copy(chain, WITHIN_S)
    assert [run.info.status for run in runs(place, "late")] == ["FINISHED"]


def test_a_relative_path_is_that_of_the_program_that_sent_the_job(
    fake, script, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri("sqlite:///mlflow.db", on=Local()) == f"sqlite:///{tmp_path}/mlflow.db"
    assert resolve_uri("http://127.0.0.1:5000", on=Local()) == "http://127.0.0.1:5000"
    prepared = prepare(Script("train.py"), on=fake, tracking="sqlite:///mlflow.db")
    assert prepared.request.tracking == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize(
    ("tracking", "message"),
    [
        ("mlruns", "'mlruns'"),
        (
            "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team",
            "mlflow-tracking-server.*'sqlite:///mlflow.db'",
        ),
    ],
)
def test_what_is_no_place_is_refused_before_anything_is_sent(tmp_path, script, tracking, message):
    here = Local(home=tmp_path / "home")
    with pytest.raises(InvalidRequest, match=message):
        prepare(Script(str(script)), on=here, tracking=tracking)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "tag", ["http://elsewhere.example:5000", "postgresql://elsewhere/x", "sqlite:///x.db\n", ""]
)
def test_a_tag_that_is_no_file_of_this_machine_is_not_followed(fake, script, tag):
    """Others may change the tags of a job."""
    job = submit(Script(str(script)), on=fake, kind="training")
    tagged = Chain(job.name, service=fake, api=TRAINING, tags={**job.tags, TRACKING_TAG: tag})
    assert get_tracker(tagged) is None
