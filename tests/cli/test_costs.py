"""What the commands say of the money: of jobs that are billed, once they have ended."""

import io

import pytest
from rich.console import Console

from raysm.cli import jobs
from raysm.cli.arguments import parse
from raysm.cli.sending import facts
from raysm.core.client.submit import prepare, submit
from raysm.core.protocol.home import VARIABLE
from raysm.core.request import Cluster, Limits
from raysm.features.script.request import Script
from tests.support.pages import assert_printed, outputs
from tests.support.sagemaker import fake_aws


@pytest.fixture
def virginia():
    """AWS in a region whose prices are at hand."""
    with fake_aws(region="us-east-1") as fake:
        yield fake


def printed(fake, *argv):
    out = io.StringIO()
    jobs.run(parse(argv), Console(file=out, width=300), fake.service)
    return out.getvalue().splitlines()


def test_a_capped_job_says_how_long_it_may_run_and_why_it_was_stopped(
    virginia, script, tmp_path, monkeypatch
):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "home"))
    shape, limits = Cluster("ml.g5.2xlarge", count=4), Limits(max_cost=14, max_cost_per_day=50)
    ready = prepare(Script(str(script)), cluster=shape, on=virginia.service, limits=limits)
    plan, end, both = outputs("guides/cost.md")
    shown = "\n".join(f"{label} {fact}" for _, label, fact in facts(ready))
    assert_printed(plan, shown)
    assert_printed(both, shown)
    job = ready.send()
    virginia.sagemaker.end(job.name, "Stopped", "MaxRuntimeExceeded", BillableTimeInSeconds=8000)
    assert_printed(end, printed(virginia, "status", job.name)[1])


def test_a_job_that_runs_has_no_bill_and_one_that_has_ended_has(virginia, script):
    shape = Cluster("ml.m5.large", count=2, keep_alive_s=600)
    job = submit(Script(str(script)), cluster=shape, on=virginia.service)
    assert job.cost() is None
    virginia.sagemaker.end(
        job.name, "Completed", BillableTimeInSeconds=100, TrainingTimeInSeconds=100
    )
    *_, money, warm = printed(virginia, "status", job.name)
    # Two instances with volumes of 30 GB.
    assert_printed(outputs("guides/account.md")[1], money)
    assert warm.startswith("  warm    the instances are billed for up to 600 s more")
    assert printed(virginia, "result", job.name)[1].startswith("money    0.0067 USD: ")
