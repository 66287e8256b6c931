"""What the jobs of a user cost on a day, and the cap on it."""

import concurrent.futures
import itertools
import time
from datetime import UTC, datetime, timedelta

import pytest

from raysm.cli.sending import facts
from raysm.core.client.costs.cap import cap
from raysm.core.client.costs.ledger import DAY_S, Entry, Ledger, most_usd
from raysm.core.client.submit import prepare, submit
from raysm.core.request import Cluster, JobRequest, Limits
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.script.request import Script
from tests.support.client_jobs import M5
from tests.support.sagemaker import refusal

NOON_S = 20_000 * DAY_S + DAY_S / 2
HOUR_S = 3600
COUNT = itertools.count()


def entry(most_usd=10.0, usd_per_hour=1.0, **fields):
    """Return a job that was sent at noon."""
    names = {
        "job": f"job-{next(COUNT)}",
        "api": "training",
        "target": "aws/",
        "region": "eu-west-1",
    }
    return Entry(
        **names | {"sent_s": NOON_S, "usd_per_hour": usd_per_hour, "most_usd": most_usd} | fields
    )


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path, lambda: NOON_S)


def test_jobs_that_run_count_with_the_most_that_they_can_cost_in_a_day(ledger):
    ledger.reserve(entry(most_usd=10), None)
    # A week at 1 USD an hour is 24 USD a day.
    ledger.reserve(entry(most_usd=168), None)
    assert (ledger.day().usd, ledger.day().jobs) == (34.0, 2)


def test_a_job_that_has_ended_counts_with_what_it_cost_on_the_day(ledger):
    midnight_s = NOON_S - DAY_S / 2
    ledger.reserve(entry(usd=8.0, started_s=NOON_S - HOUR_S, ended_s=NOON_S), None)
    # Three of its four hours were yesterday's.
    over_midnight = {"started_s": midnight_s - 3 * HOUR_S, "ended_s": midnight_s + HOUR_S}
    ledger.reserve(entry(usd=4.0, **over_midnight), None)
    ledger.reserve(entry(usd=99.0, sent_s=midnight_s - HOUR_S), None)
    assert (ledger.day().usd, ledger.day().jobs) == (9.0, 2)


def test_a_job_that_the_cap_of_the_day_does_not_allow_is_refused_with_the_amounts(ledger):
    ledger.reserve(entry(most_usd=30), 50)
    with pytest.raises(
        InvalidRequest, match=r"could cost 24.00 USD.*20.00 USD are left"
    ) as refused:
        ledger.reserve(entry(most_usd=25, usd_per_hour=1.0, job="late"), 44)
    assert "--max-cost" in refused.value.remedy
    ledger.reserve(entry(most_usd=19), 50)
    assert ledger.day().jobs == 2


def test_a_job_that_was_not_sent_after_all_does_not_count(ledger):
    job = entry()
    ledger.reserve(job, 50)
    ledger.release(job.job)
    assert ledger.day().jobs == 0


def test_of_two_processes_that_send_at_the_same_time_one_takes_the_rest(ledger):
    def send(number):
        try:
            ledger.reserve(entry(most_usd=10), 35)
        except InvalidRequest:
            return 0
        return 10

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(send, range(20))) == 30
    assert ledger.day().usd == 30


def test_a_file_of_something_else_is_named_with_the_remedy(ledger, tmp_path):
    (tmp_path / "costs.db").write_text("no database, but longer than the header of one" * 9)
    with pytest.raises(ServiceError, match="costs.db.*remove it"):
        ledger.day()


# A job of two instances at 1 USD an hour.
PRICED = {"price_per_hour": 1.0, "max_runtime_s": 6 * HOUR_S}


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSM_HOME", str(tmp_path / "home"))


def send(remote, script, **limits):
    limits = Limits(**PRICED | limits)
    return submit(Script(str(script)), cluster=M5, on=remote.service, limits=limits)


def test_a_job_beyond_the_cap_of_the_day_is_refused_before_anything_is_uploaded(
    remote, script, own_home
):
    send(remote, script, max_cost=8)
    uploads = len(remote.sagemaker.sent)
    with pytest.raises(InvalidRequest, match="max_cost_per_day=15"):
        send(remote, script, max_cost=8, max_cost_per_day=15)
    assert len(remote.sagemaker.sent) == uploads
    send(remote, script, max_cost=6, max_cost_per_day=15)


def test_the_end_of_a_job_leaves_the_rest_of_its_cap_to_others(remote, script, own_home):
    first = send(remote, script, max_cost=8)
    with pytest.raises(InvalidRequest, match="max_cost_per_day"):
        send(remote, script, max_cost=8, max_cost_per_day=15)
    remote.sagemaker.end(first.name, "Completed", BillableTimeInSeconds=600)
    send(remote, script, max_cost=8, max_cost_per_day=15)


def test_a_job_that_the_service_refuses_does_not_count(remote, script, own_home):
    remote.fail("create_training_job", refusal("ValidationException", "no"), times=1)
    with pytest.raises(ServiceError):
        send(remote, script, max_cost=8, max_cost_per_day=15)
    send(remote, script, max_cost=8, max_cost_per_day=15)


def test_the_plan_names_what_is_left_of_the_day(remote, script, own_home):
    send(remote, script, max_cost=8)
    limits = Limits(**PRICED, max_cost=5, max_cost_per_day=15)
    ready = prepare(Script(str(script)), cluster=M5, on=remote.service, limits=limits)
    assert {label: fact for _, label, fact in facts(ready)}["today"] == (
        "up to 5.00 USD of the 15.00 USD that your jobs may cost today (UTC); 1 other job may "
        "cost 8.00 USD"
    )


@pytest.mark.parametrize(
    "error", [refusal("ThrottlingException", "slow down"), refusal("AccessDenied", "no")]
)
def test_a_job_of_which_the_service_does_not_tell_stays_at_its_most(
    remote, script, own_home, error
):
    first = send(remote, script, max_cost=8)
    remote.sagemaker.end(first.name, "Completed", BillableTimeInSeconds=600)
    remote.fail("describe_training_job", error)
    with pytest.raises(InvalidRequest, match="max_cost_per_day"):
        send(remote, script, max_cost=8, max_cost_per_day=15)


def cost_of(home):
    """Return what is counted for today and yesterday: a test may run at midnight."""
    now_s = time.time()
    return sum(Ledger(home, lambda at_s=at_s: at_s).day().usd for at_s in (now_s, now_s - DAY_S))


VOLUME_USD = 30 * 0.154 / 730
"""An hour of a volume of 30 GB in eu-west-1."""


def test_what_a_job_and_its_warm_pool_have_cost_is_noted_when_it_has_ended(
    remote, script, own_home
):
    limits, shape = Limits(**PRICED), Cluster("ml.m5.large", count=2, keep_alive_s=900)
    job = submit(Script(str(script)), cluster=shape, on=remote.service, limits=limits)
    most = 2 * (1 + VOLUME_USD) * (6 * HOUR_S + 120 + 900) / HOUR_S
    assert Ledger(remote.service.home).day().usd == pytest.approx(most)
    begun = datetime.now(UTC) - timedelta(minutes=15)
    remote.sagemaker.end(job.name, "Completed", BillableTimeInSeconds=600, TrainingStartTime=begun)
    Ledger(remote.service.home).settle(remote.service)
    paid = 2 * (1 + VOLUME_USD) * (600 + 900) / HOUR_S
    assert cost_of(remote.service.home) == pytest.approx(paid)


def test_a_job_that_was_removed_has_cost_its_most(remote, script, own_home):
    job = send(remote, script, max_cost=8)
    del remote.sagemaker.jobs[job.name]
    Ledger(remote.service.home).settle(remote.service)
    assert cost_of(remote.service.home) == pytest.approx(8.0)
    # The day after it does not count any more.
    tomorrow = Ledger(remote.service.home, lambda: time.time() + 2 * DAY_S)
    assert tomorrow.day().jobs == 0


@pytest.mark.parametrize(("ago", "settles"), [(timedelta(hours=1), False), (timedelta(2), True)])
def test_a_follow_up_that_is_due_counts_until_nobody_has_sent_it_for_a_day(
    remote, script, own_home, ago, settles
):
    job = send(remote, script, max_restarts=1)
    ended = datetime.now(UTC) - ago
    remote.sagemaker.end(
        job.name, "Stopped", "MaxRuntimeExceeded", BillableTimeInSeconds=60, TrainingEndTime=ended
    )
    ledger = Ledger(remote.service.home)
    before = ledger.day().usd
    ledger.settle(remote.service)
    assert (ledger.day().usd < before) is settles


def test_follow_ups_and_the_cap_bound_what_a_job_can_cost():
    limits = Limits(max_runtime_s=3480, max_restarts=2)
    request = JobRequest(name="a", workload=Script("s.py"), cluster=M5, limits=limits)
    assert most_usd(request, 5.0, None) == 15.0
    capped = cap(8, usd_per_hour=5.0, max_runtime_s=3480, has_follow_ups=True)
    assert most_usd(request, 5.0, capped) == 8.0
