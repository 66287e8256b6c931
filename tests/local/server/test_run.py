"""The life of a job that never comes to its instances; test_life_cycle has those that do."""

import threading
import time
from types import SimpleNamespace

import pytest

from raysm.contract.home import Clock
from raysm.contract.job_api import TRAINING
from raysm.local.scenario import Scenario
from raysm.local.server.market import Stock
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.run import JobRun
from raysm.local.server.services import Cores, Services
from raysm.local.server.validation import ApiError
from tests.support.api_requests import training_parameters

WAIT_S = 300.0


class Watched(Cores):
    """Cores of which a test knows that somebody looked whether they are free."""

    def __init__(self, cores):
        super().__init__(cores)
        self.looked = threading.Semaphore(0)

    def wait(self, ticket, timeout_s):
        self.looked.release()
        return super().wait(ticket, timeout_s)


class SetForward(Clock):
    """The machine's clock, which somebody has set a day forward since the job was made."""

    def now(self):
        return super().now() + 86_400.0


class Jobs:
    """Jobs that wait for the one core of a machine, which somebody else has."""

    def __init__(self, folder, clock=None):
        self.records, self.cores = Records(folder, clock), Watched(1)
        self.ticket = self.cores.ask(1, "somebody-else")
        assert self.cores.wait(self.ticket, WAIT_S)
        # Neither S3 nor metrics: nothing is brought before a job's turn comes.
        self.services = Services(
            records=self.records,
            moto=SimpleNamespace(),
            objects=SimpleNamespace(),
            cores=self.cores,
            stock=Stock(Scenario(), self.records),
        )

    def start(self, **fields):
        request = training_parameters(**fields)
        record = JobRecord(
            kind="training",
            name="a-job",
            arn="arn",
            region="us-east-1",
            request=request,
            created_s=time.time(),
            modified_s=time.time(),
        )
        self.records.add(record)
        run = JobRun(self.services, record)
        run.start()
        self.await_secondary("Pending")
        return run

    def record(self):
        return self.records.get(TRAINING, "a-job")

    def await_secondary(self, secondary):
        deadline = time.monotonic() + WAIT_S
        while self.record().secondary != secondary:
            assert time.monotonic() < deadline, self.record()
            time.sleep(0.01)


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


def test_a_job_that_is_stopped_while_it_waits_never_starts(jobs):
    run = jobs.start()
    run.stop()
    assert run.await_end(WAIT_S)
    assert (jobs.record().status, jobs.record().secondary) == ("Stopped", "Stopped")
    assert jobs.record().started_s is None
    with pytest.raises(ApiError, match="the training job is in status Stopped"):
        run.stop()
    # Its place in the queue is free for the next one.
    assert jobs.cores.waiting() == 0


def test_a_clock_that_is_set_forward_ends_no_job_that_waits(tmp_path):
    jobs = Jobs(tmp_path, SetForward())
    run = jobs.start(
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600, "MaxPendingTimeInSeconds": 7200},
    )
    for _ in range(5):
        assert jobs.cores.looked.acquire(timeout=WAIT_S), jobs.record()
    assert jobs.record().secondary == "Pending"
    run.shut_down()
