"""A cap on the cost of a job: the limit that follows, its refusals, and how a job that it ended reads."""

import dataclasses
import datetime

import pytest

from raysm.core.client.costs.bill import most_expensive
from raysm.core.client.costs.cap import MIN_PAID_S, STOP_GRACE_S, cap, paid_seconds
from raysm.core.client.costs.prices import RegionPrices, cap_of, save_prices
from raysm.core.client.job.chain import follow_up, next_name
from raysm.core.client.job.description import budget_used, read, render_html, render_text
from raysm.core.client.service import connect
from raysm.core.client.submit import prepare, submit
from raysm.core.protocol.job_api import PROCESSING, TRAINING
from raysm.core.protocol.names import MAX_RESTARTS_TAG
from raysm.core.request import JobRequest, Limits
from raysm.errors import InvalidRequest, JobFailed
from raysm.features.script.request import Script
from tests.support.client_jobs import M5, long_job
from tests.support.sagemaker import aws

BEGUN = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
DAY_S = 86_400


def capped(request):
    """Return the time limit and the variables of a call."""
    condition, environment = request["StoppingCondition"], request.get("Environment", {})
    names = ("RAYSM_MAX_COST", "RAYSM_MAX_COST_S")
    return condition["MaxRuntimeInSeconds"], tuple(environment.get(name) for name in names)


def test_a_cap_pays_for_the_run_its_stop_and_the_warm_pool():
    # 14 USD at 2 instances of 3.50 USD an hour are two hours.
    assert paid_seconds(14, 7.0) == 7200
    assert paid_seconds(14, 7.0, keep_alive_s=600) == 6600
    found = cap(14, usd_per_hour=7.0, max_runtime_s=DAY_S, keep_alive_s=600)
    assert (found.max_runtime_s, found.is_reason) == (6600 - STOP_GRACE_S, True)


def test_a_shorter_limit_of_the_user_stays_and_the_cap_leaves_no_trace():
    found = cap(14, usd_per_hour=7.0, max_runtime_s=3600)
    assert (found.max_runtime_s, found.is_reason, found.environment) == (3600, False, {})


def test_a_cap_that_does_not_pay_for_minutes_is_refused_with_the_amount_that_does():
    with pytest.raises(InvalidRequest, match=r"max_cost=1 .*5 min.*32 USD an hour") as refused:
        cap(1, usd_per_hour=32.0, max_runtime_s=DAY_S)
    assert refused.value.remedy.startswith("give at least 3.74 USD")
    assert cap(3.74, usd_per_hour=32.0, max_runtime_s=DAY_S).max_runtime_s >= MIN_PAID_S


@pytest.mark.parametrize("keep_alive_s", [0, 600])
def test_the_shortest_run_that_is_worth_a_start_counts_its_stop_and_its_warm_pool(keep_alive_s):
    # At 3600 USD an hour, a second costs 1 USD.
    least = MIN_PAID_S + STOP_GRACE_S + keep_alive_s
    rules = {"usd_per_hour": 3600.0, "max_runtime_s": DAY_S, "keep_alive_s": keep_alive_s}
    assert cap(least, **rules).max_runtime_s == MIN_PAID_S
    with pytest.raises(InvalidRequest) as refused:
        cap(least - 1, **rules)
    assert refused.value.remedy.startswith(f"give at least {least:,.2f} USD")
    assert ("10 min in a warm pool" in str(refused.value)) is bool(keep_alive_s)


@pytest.mark.parametrize("amount", [0, -1, True, float("nan"), float("inf"), "14"])
@pytest.mark.parametrize("name", ["max_cost", "max_cost_per_day", "price_per_hour"])
def test_an_amount_that_is_none_is_refused_by_its_name(name, amount):
    with pytest.raises(InvalidRequest, match=f"{name} .*got {amount!r}"):
        Limits(**{name: amount})


@pytest.mark.parametrize("kind", ["training", "processing"])
def test_the_service_itself_gets_the_limit(remote, script, kind):
    limits = Limits(max_cost=2.3, price_per_hour=1.0)
    ready = prepare(Script(str(script)), cluster=M5, on=remote.service, limits=limits, kind=kind)
    limit_s, (usd, paid_s) = capped(ready.plan.request)
    # Two instances at 1 USD with a volume of 30 GB at 0.154 USD a GB and month.
    assert paid_s == f"{paid_seconds(2.3, 2 * (1 + 30 * 0.154 / 730))}"
    assert (limit_s, usd) == (int(paid_s) - STOP_GRACE_S, "2.3")
    # The request keeps the user's own limit, so that it can be sent again with another cap.
    assert ready.request.limits.max_runtime_s == DAY_S


def test_spot_capacity_may_be_waited_for_as_long_as_without_a_cap(remote, script):
    limits = Limits(max_cost=2, price_per_hour=1.0, spot=True)
    ready = prepare(Script(str(script)), cluster=M5, on=remote.service, limits=limits)
    condition = ready.plan.request["StoppingCondition"]
    assert condition["MaxRuntimeInSeconds"] < 3600
    assert condition["MaxWaitTimeInSeconds"] == 2 * DAY_S


@pytest.mark.parametrize("option", ["max_cost", "max_cost_per_day"])
def test_an_unknown_price_is_refused_with_the_option_that_gives_it(remote, script, option):
    limits = Limits(**{option: 14})
    with pytest.raises(InvalidRequest, match=f"{option} .*price of ml.m5.large") as refused:
        prepare(Script(str(script)), cluster=M5, on=remote.service, limits=limits)
    assert "--price-per-hour" in refused.value.remedy


def test_the_unknown_price_of_a_volume_is_refused_too(remote, script, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSM_HOME", str(tmp_path))
    listed = RegionPrices(
        region="sa-east-1", as_of="2026-11-01", version="1", usd={"ml.m5.large": 0.1}
    )
    save_prices(listed)
    limits, service = Limits(max_cost=14), connect(aws(region="sa-east-1"))
    with pytest.raises(InvalidRequest, match="the volume of ml.m5.large in sa-east-1"):
        cap_of(M5, limits, service)
    assert cap_of(M5, dataclasses.replace(limits, price_per_hour=0.1), service) is not None


def test_where_nothing_is_billed_a_cap_needs_a_price_to_have_an_effect(fake, script):
    def limit_of(**limits):
        ready = prepare(Script(str(script)), on=fake, limits=Limits(**limits))
        return capped(ready.plan.request)[0]

    assert limit_of(max_cost=125) == DAY_S
    assert limit_of(max_cost=125, price_per_hour=3600) == 5


def answered(api=TRAINING, status="Stopped", **fields):
    """Return the description of a job that its cap of 14 USD stopped after two hours."""
    answer = {
        api.name_key: "task",
        api.arn_key: "arn:aws:sagemaker:us-east-1:000000000000:x/task",
        api.status_key: status,
        api.start_time_key: BEGUN,
        api.end_time_key: BEGUN + datetime.timedelta(seconds=7100),
        "StoppingCondition": {"MaxRuntimeInSeconds": 7200 - STOP_GRACE_S},
        "Environment": {"RAYSM_MAX_COST": "14", "RAYSM_MAX_COST_S": "7200", "MODE": "fast"},
    }
    if api is TRAINING:
        answer |= {
            "SecondaryStatus": "MaxRuntimeExceeded",
            "BillableTimeInSeconds": 7100,
            "CheckpointConfig": {"S3Uri": "s3://bucket/state"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        }
    return read(api, answer | fields)


USED = "stopped: its budget of 14 USD is used"


@pytest.mark.parametrize("api", [TRAINING, PROCESSING])
def test_every_process_that_describes_the_job_reads_why_it_ended(api):
    job = answered(api)
    assert budget_used(job).startswith(USED)
    assert USED in render_text(job, aws())
    assert USED in render_html(job, aws())


@pytest.mark.parametrize(
    "job",
    [
        answered(SecondaryStatus="Stopped"),
        answered(status="Completed", SecondaryStatus="Completed"),
        answered(Environment={}),
        answered(Environment={"RAYSM_MAX_COST": "much", "RAYSM_MAX_COST_S": "7200"}),
        answered(StoppingCondition={"MaxRuntimeInSeconds": 3600}, BillableTimeInSeconds=3620),
        answered(PROCESSING, **{PROCESSING.end_time_key: BEGUN + datetime.timedelta(seconds=60)}),
    ],
    ids=[
        "stopped",
        "completed",
        "no cap",
        "the user's variable",
        "own limit",
        "stopped processing",
    ],
)
def test_a_job_that_something_else_ended_says_nothing_of_a_budget(job):
    assert budget_used(job) == ""


TAGS = {MAX_RESTARTS_TAG: "3"}


def test_a_follow_up_gets_what_the_jobs_before_it_left():
    own = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 9000}}
    first = answered(**own, BillableTimeInSeconds=3650)
    following = follow_up(first, TAGS).request
    assert following["StoppingCondition"] == {
        "MaxRuntimeInSeconds": 7200 - 3650 - STOP_GRACE_S,
        "MaxWaitTimeInSeconds": 9000,
    }
    left = {"RAYSM_MAX_COST": "14", "RAYSM_MAX_COST_S": f"{7200 - 3650}", "MODE": "fast"}
    assert following["Environment"] == left


def test_a_follow_up_keeps_the_users_own_limit_while_the_cap_pays_for_it():
    own = {"StoppingCondition": {"MaxRuntimeInSeconds": 600}}
    assert capped(follow_up(answered(**own, BillableTimeInSeconds=630), TAGS).request)[0] == 600


def test_what_the_service_does_not_say_counts_at_its_most():
    own = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600}, "BillableTimeInSeconds": None}
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "KeepAlivePeriodInSeconds": 900}
    first = answered(**own, ResourceConfig=resources)
    left_s = 7200 - (3600 + STOP_GRACE_S) - 900
    assert capped(follow_up(first, TAGS).request) == (left_s - STOP_GRACE_S, ("14", f"{left_s}"))


@pytest.mark.parametrize(("status", "warm_s"), [("Available", 900), ("Terminated", 40)])
def test_a_warm_pool_counts_at_its_most_until_it_is_over(status, warm_s):
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "KeepAlivePeriodInSeconds": 900}
    pool = {"Status": status, "ResourceRetainedBillableTimeInSeconds": 40}
    own = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600}, "BillableTimeInSeconds": 3600}
    first = answered(**own, ResourceConfig=resources, WarmPoolStatus=pool)
    assert capped(follow_up(first, TAGS).request)[0] == 7200 - 3600 - warm_s - STOP_GRACE_S


def test_a_chain_ends_where_its_cap_does_not_pay_for_another_job():
    own = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600}}
    job = answered(**own, BillableTimeInSeconds=7200 - STOP_GRACE_S - 59)
    assert next_name(job, TAGS) is None
    assert budget_used(job).startswith(USED)
    assert (
        next_name(answered(**own, BillableTimeInSeconds=7200 - STOP_GRACE_S - 60), TAGS)
        == "task-r1"
    )


def test_spot_capacity_that_billed_less_than_it_ran_leaves_the_rest_to_a_follow_up():
    job = answered(EnableManagedSpotTraining=True, BillableTimeInSeconds=3000)
    assert capped(follow_up(job, TAGS).request)[0] == 7200 - 3000 - STOP_GRACE_S


def test_spot_capacity_that_nothing_continues_was_ended_by_its_cap_all_the_same():
    job = answered(EnableManagedSpotTraining=True, BillableTimeInSeconds=3000)
    assert budget_used(job).startswith(USED)


def test_a_job_that_its_cap_ended_raises_that_with_the_way_to_continue(remote, script):
    ended = {
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": "MaxRuntimeExceeded",
        "BillableTimeInSeconds": 7200,
    }
    remote.sagemaker.script = [[ended]]
    limits = Limits(max_cost=2, price_per_hour=1.0)
    job = submit(Script(str(script)), cluster=M5, on=remote.service, limits=limits)
    with pytest.raises(JobFailed, match="stopped: its budget of 2 USD is used") as failed:
        job.result(60)
    assert "--resume --max-cost" in failed.value.remedy


def test_a_chain_without_a_cap_goes_on_as_before(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([{"TrainingJobStatus": "Completed"}])
    job.wait(60)
    first, second = remote.sagemaker.sent
    assert first["StoppingCondition"] == second["StoppingCondition"]


def most(found, **limits):
    request = JobRequest(name="a", workload=Script("s.py"), cluster=M5, limits=Limits(**limits))
    return most_expensive(request, "us-east-1", cap=found)


def test_the_plan_names_the_cap_and_the_time_that_it_pays_for():
    found = cap(14, usd_per_hour=7.0, max_runtime_s=DAY_S)
    assert most(found, max_cost=14) == (
        "at most 14.00 USD, its max_cost: the service stops it after 118 min at 7.00 USD an hour, "
        "with 120 s to save its work"
    )
    chain = cap(14, usd_per_hour=7.0, max_runtime_s=3600, has_follow_ups=True)
    assert most(chain, max_cost=14, max_runtime_s=3600, max_restarts=5) == (
        "at most 14.00 USD, its max_cost: it and its follow-ups may take 2.0 h at 7.00 USD an "
        "hour, each up to 60 min"
    )


def test_the_plan_of_a_job_that_cannot_reach_its_cap_names_what_it_costs():
    found = cap(14, usd_per_hour=7.0, max_runtime_s=600)
    assert most(found, max_cost=14, max_runtime_s=600, price_per_hour=3.5).startswith(
        "at most 1.17 USD"
    )
