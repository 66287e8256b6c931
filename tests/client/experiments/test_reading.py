"""One job read from the service as a row of the table."""

import datetime

import pytest

from raysm.client.costs.bill import bill_of, usd_so_far
from raysm.client.experiments.listing import read_job
from raysm.client.job.description import Status, read
from raysm.client.submit import submit
from raysm.contract.events import Metric, line
from raysm.contract.job_api import PROCESSING, TRAINING
from raysm.request import Cluster, Script
from tests.support.client_jobs import M5, NOW_MS
from tests.support.sagemaker import fake_aws, now, refusal


@pytest.fixture
def american():
    """AWS in the region whose prices are known."""
    with fake_aws(region="us-east-1") as fake:
        yield fake


M5X = Cluster("ml.m5.xlarge", count=2)


def losses(*values):
    return [(NOW_MS + step, line(Metric(name="loss", value=value, step=step))) for step, value in enumerate(values)]


def test_a_row_has_parameters_metrics_times_and_what_it_cost(american, script):
    job = submit(
        Script(str(script), args=["--lr", "0.1"]),
        cluster=M5X,
        on=american.service,
        project="digits",
        name="net",
        hyperparameters={"depth": 3, "sagemaker_program": "x"},
    )
    american.write_log(job.name, "algo-1", losses(3.0, 1.0, 2.0))
    started = now() - datetime.timedelta(minutes=10)
    american.sagemaker.end(job.name, "Completed", TrainingStartTime=started, BillableTimeInSeconds=100)
    reading = read_job(american.service, TRAINING, job.name)
    row = reading.row
    assert reading.is_final
    assert (row.name, row.status, row.project, row.task, row.workload) == (
        job.name,
        Status.COMPLETED,
        "digits",
        "net",
        "script",
    )
    assert dict(row.parameters) == {"lr": 0.1, "depth": 3}
    assert (row.metrics["loss"].last, row.metrics["loss"].lowest) == (2.0, 1.0)
    assert reading.curves["loss"][1][::2] == (1, 1.0)
    assert 290 < row.duration_s < 310
    answer = read(TRAINING, american.service.describe(TRAINING, job.name))
    assert row.cost_usd == bill_of([answer], american.service.region).usd > 0
    assert set(row.versions) == {"raysm", "python"}
    assert len(row.code) == 64


def test_a_job_that_runs_is_not_final_and_costs_what_it_has_cost_so_far(american, script):
    job = submit(Script(str(script)), cluster=M5X, on=american.service)
    answer = american.sagemaker.jobs[job.name]["answer"]
    answer["TrainingStartTime"] = now() - datetime.timedelta(hours=1)
    reading = read_job(american.service, TRAINING, job.name)
    assert not reading.is_final
    an_hour = usd_so_far(
        read(TRAINING, answer), american.service.region, answer["TrainingStartTime"].timestamp() + 3600
    )
    assert reading.row.cost_usd == pytest.approx(an_hour, rel=0.1) != 0


def test_a_cost_that_is_not_known_is_none_and_never_0(remote, job):
    remote.sagemaker.end(job.name, "Completed", BillableTimeInSeconds=100, TrainingStartTime=now())
    assert read_job(remote.service, TRAINING, job.name).row.cost_usd is None


def test_a_job_of_others_has_what_the_service_tells(remote):
    remote.sagemaker.create_processing_job(ProcessingJobName="theirs", AppSpecification={"ImageUri": "their/image"})
    row = read_job(remote.service, PROCESSING, "theirs").row
    assert (row.project, row.workload, row.image, row.parameters) == (None, None, "their/image", {})


def test_what_may_not_be_read_is_left_out_and_asked_for_again(remote, job):
    remote.write_log(job.name, "algo-1", losses(1.0))
    remote.sagemaker.end(job.name, "Completed")
    remote.fail("describe_log_streams", refusal("AccessDeniedException", "not yours"), times=1)
    first, second = (read_job(remote.service, TRAINING, job.name) for _ in range(2))
    assert (first.is_final, first.row.metrics, first.row.task) == (False, {}, "train")
    assert (second.is_final, [*second.row.metrics]) == (True, ["loss"])


def test_a_follow_up_has_the_parameters_of_the_first_job(remote, script):
    job = submit(Script(str(script), args=["--lr", "1"]), cluster=M5, on=remote.service)
    tags = [*remote.sagemaker.jobs[job.name]["tags"], {"Key": "raysm:first", "Value": job.name}]
    remote.sagemaker.create_training_job(TrainingJobName=f"{job.name}-r1", Tags=tags)
    row = read_job(remote.service, TRAINING, f"{job.name}-r1").row
    assert (row.first, row.parameters) == (job.name, {"lr": 1})
