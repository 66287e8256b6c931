"""No drawn job costs more than its cap, and no drawn day, whatever fails, waits or is answered late."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from raysm.core.client.costs.cap import MIN_FOLLOW_UP_S, STOP_GRACE_S, cap
from raysm.core.client.costs.ledger import DAY_S, Entry, Ledger
from raysm.core.client.job.chain import follow_up, next_name
from raysm.core.client.job.description import budget_used, read
from raysm.core.client.plan import plan
from raysm.core.client.submit import job_tags
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Cluster, JobRequest, Limits
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests.support.sagemaker import aws, places_of

JOBS = 1_000
BEGUN = datetime(2026, 11, 22, tzinfo=UTC)
ENOUGH = 1 + 1e-9
"""Rounding of sums of floats."""


@dataclass
class Market:
    """A SageMaker that runs one job after the other, and bills as AWS's pages say: the worst that they allow."""

    chance: random.Random
    usd_per_hour: float
    billed_s: float = 0.0
    warm_s: float = 0.0
    answers: list = field(default_factory=list)

    @property
    def usd(self):
        return self.usd_per_hour * (self.billed_s + self.warm_s) / 3600

    def run(self, call, work_s, fails):
        """Run the job of a call; return the seconds of ``work_s`` that it worked, and Describe's answer."""
        chance, limit_s = self.chance, call["StoppingCondition"]["MaxRuntimeInSeconds"]
        ran_s = min(work_s, limit_s) * (chance.random() if fails else 1.0)
        reached = not fails and work_s > limit_s
        # User code may use all of its time to save, and a machine that hangs uses it in any case.
        stop_s = chance.choice((0, STOP_GRACE_S, chance.uniform(0, STOP_GRACE_S))) if reached else 0
        billed_s = float(round(ran_s + stop_s))
        if call["EnableManagedSpotTraining"]:
            billed_s *= chance.choice((1.0, chance.random()))
        self.billed_s += billed_s
        end = ("Failed" if fails else "Completed",) * 2
        answer = {
            **{key: item for key, item in call.items() if key != "Tags"},
            "TrainingJobArn": "arn:aws:sagemaker:us-east-1:000000000000:training-job/a",
            "TrainingJobStatus": "Stopped" if reached else end[0],
            "SecondaryStatus": "MaxRuntimeExceeded" if reached else end[1],
            "TrainingStartTime": BEGUN,
            "TrainingEndTime": BEGUN + timedelta(seconds=ran_s + stop_s),
            **self._pool(call),
        }
        # The service may answer before it has counted.
        if chance.random() < 0.8:
            answer["BillableTimeInSeconds"] = int(billed_s)
            self.billed_s += int(billed_s) - billed_s
        self.answers.append(answer)
        return ran_s, answer

    def _pool(self, call):
        kept_s = call["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
        if not kept_s:
            return {}
        # Until a follow-up takes it over, which may come late, or until its end.
        waited_s = self.chance.choice((0, kept_s, self.chance.randint(0, kept_s)))
        self.warm_s += waited_s
        is_over = waited_s == kept_s and self.chance.random() < 0.5
        status = "Terminated" if is_over else "Available"
        seen_s = waited_s if is_over else self.chance.randint(0, waited_s)
        return {
            "WarmPoolStatus": {"Status": status, "ResourceRetainedBillableTimeInSeconds": seen_s}
        }


def draw(chance):
    """Return a drawn request with its price per hour, and the seconds that its work takes."""
    spot = chance.random() < 0.4
    limits = Limits(
        max_cost=round(10 ** chance.uniform(-1, 4), 2),
        max_runtime_s=chance.choice((900, 3600, DAY_S, 5 * DAY_S)),
        max_restarts=chance.choice((0, 0, 1, 5, 50)),
        spot=spot,
        retry_attempts=chance.choice((None, 3)),
    )
    cluster = Cluster(
        "ml.m5.large",
        count=chance.choice((1, 2, 8, 64)),
        # SageMaker takes no warm pools on spot capacity.
        keep_alive_s=0 if spot else chance.choice((0, 0, 60, 1800)),
    )
    request = JobRequest(name="a", workload=Script("s.py"), cluster=cluster, limits=limits)
    usd_per_hour = cluster.count * 10 ** chance.uniform(-1.3, 1.6)
    return request, usd_per_hour, 10 ** chance.uniform(2, 6.3)


def capped_run(chance):
    """Run a drawn job until nothing continues it; return the market and its cap, or None if the cap was refused."""
    request, usd_per_hour, work_s = draw(chance)
    limits = request.limits
    try:
        found = cap(
            limits.max_cost,
            usd_per_hour=usd_per_hour,
            max_runtime_s=limits.max_runtime_s,
            has_follow_ups=limits.max_restarts > 0,
            keep_alive_s=request.cluster.keep_alive_s,
        )
    except InvalidRequest:
        return None
    market, tags = Market(chance, usd_per_hour), dict(job_tags(request, "a"))
    target = aws()
    call = plan(request, target=target, places=places_of(target), tags=tags, cap=found).request
    while True:
        ran_s, answer = market.run(call, work_s, chance.random() < 0.1)
        work_s -= ran_s
        job, tags = read(TRAINING, answer), {tag["Key"]: tag["Value"] for tag in call["Tags"]}
        if next_name(job, tags) is None:
            return market, found, job, limits
        call = follow_up(job, tags).request


@pytest.fixture(scope="module")
def runs():
    chance = random.Random(48)
    found = []
    while len(found) < JOBS:
        run = capped_run(chance)
        if run is not None:
            found.append(run)
    return found


def test_no_job_costs_more_than_its_cap(runs):
    costs = [(market.usd / found.max_cost, len(market.answers)) for market, found, *_ in runs]
    assert max(part for part, _ in costs) <= ENOUGH
    # The draws reach what they are to try.
    assert sum(part > 0.9 for part, _ in costs) > JOBS / 10
    assert sum(number > 1 for _, number in costs) > JOBS / 10


def test_a_job_that_its_cap_ended_says_so_and_one_that_ended_otherwise_does_not(runs):
    for market, found, job, _ in runs:
        if not budget_used(job):
            continue
        assert job.exceeded_runtime
        if not any(answer["EnableManagedSpotTraining"] for answer in market.answers):
            # What is left does not pay for a follow-up, its stop and its pool.
            kept_s = job.answer["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
            counted = sum(
                answer.get(
                    "BillableTimeInSeconds",
                    answer["StoppingCondition"]["MaxRuntimeInSeconds"] + STOP_GRACE_S,
                )
                for answer in market.answers
            )
            left_s = found.paid_s - counted - len(market.answers) * kept_s
            assert left_s < STOP_GRACE_S + MIN_FOLLOW_UP_S


def test_no_job_gets_more_time_than_its_user_allows(runs):
    for market, _, _, limits in runs:
        for answer in market.answers:
            assert 0 < answer["StoppingCondition"]["MaxRuntimeInSeconds"] <= limits.max_runtime_s
        assert len(market.answers) <= 1 + limits.max_restarts


CAP_OF_DAY = 100.0


@pytest.mark.parametrize("seed", range(5))
def test_no_day_costs_more_than_its_cap(tmp_path, seed):
    chance, now_s = random.Random(seed), 20_000.0 * DAY_S
    ledger = Ledger(tmp_path, lambda: now_s)
    running, billed = {}, []
    for number in range(60):
        now_s += chance.expovariate(1 / 7200)
        for name, (entry, started_s, ends_s) in list(running.items()):
            if ends_s <= now_s:
                usd = entry.usd_per_hour * (ends_s - started_s) / 3600
                # As the ledger notes it once the service says that the job has ended.
                ended = replace(entry, started_s=started_s, ended_s=ends_s, usd=usd)
                ledger.reserve(ended, None)
                del running[name]
        usd_per_hour, runtime_s = chance.uniform(0.1, 4), chance.choice((3600, DAY_S, 5 * DAY_S))
        entry = Entry(
            job=f"job-{number}",
            api="training",
            target="aws/",
            region="us-east-1",
            sent_s=now_s,
            usd_per_hour=usd_per_hour,
            most_usd=usd_per_hour * (runtime_s + STOP_GRACE_S) / 3600,
        )
        try:
            ledger.reserve(entry, CAP_OF_DAY)
        except InvalidRequest:
            continue
        # It waits for capacity first, and often runs to its limit.
        started_s = now_s + chance.choice((0, 600, DAY_S))
        ran_s = (runtime_s + STOP_GRACE_S) * chance.choice((1.0, chance.random()))
        running[entry.job] = (entry, started_s, started_s + ran_s)
        billed.append((started_s, started_s + ran_s, usd_per_hour))
    days = range(20_000, 20_000 + 40)
    costs = [
        sum(
            rate / 3600 * max(0.0, min(end, day * DAY_S + DAY_S) - max(begin, day * DAY_S))
            for begin, end, rate in billed
        )
        for day in days
    ]
    assert CAP_OF_DAY / 2 < max(costs) <= CAP_OF_DAY * ENOUGH
