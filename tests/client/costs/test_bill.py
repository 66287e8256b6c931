"""What jobs have cost and will cost."""

from datetime import UTC, datetime

import pytest

from raysm import Cluster, JobRequest, Limits, Script
from raysm.client.costs.bill import bill_of, lines, most_expensive
from raysm.client.costs.prices import Price, price_of
from raysm.client.job.description import read
from raysm.contract.job_api import TRAINING
from raysm.request.session import SessionWorkload

PRICE = Price(usd_per_hour=3.6, origin="a test's")


def most(cluster, region="us-east-1", price=price_of, **limits):
    request = JobRequest(name="a", workload=Script("s.py"), cluster=cluster, limits=Limits(**limits))
    return most_expensive(request, region, price)


def test_of_a_job_about_which_nothing_is_known_its_limit_says_what_it_costs_at_most():
    assert most(Cluster("ml.m5.large", count=2), max_runtime_s=3600) == (
        "at most 0.24 USD with the volumes: 2 x ml.m5.large at 0.115 USD/h (on demand in us-east-1, as of 2026-09), "
        "for the 60 min that it may take, 2.0 instance-hours"
    )


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        (100, "at most 72.00 USD: 3.00 USD an hour for the 24.0 h that it may take, 48.0 instance-hours"),
        (2, "at most 2.00 USD, its budget, which lasts 40 min at 3.00 USD an hour"),
    ],
)
def test_a_session_costs_at_most_its_budget_at_the_price_that_its_user_gave(budget, amount):
    session = SessionWorkload(budget_usd=budget, usd_per_hour=3.0)
    request = JobRequest(name="a", workload=session, cluster=Cluster("ml.new.large", count=2))
    end = "; it ends after 30 min without a call, or after 5 min without a client"
    assert most_expensive(request, "us-east-1") == amount + end


def test_of_a_choice_of_types_the_dearest_is_the_most_and_one_without_a_price_makes_it_unknown():
    prices = {"ml.g5.xlarge": 2.0, "ml.p3.2xlarge": 5.0}

    def price(name, region):
        return Price(usd_per_hour=prices[name], origin="a test's") if name in prices else None

    cluster = Cluster("ml.g5.xlarge", count=2, alternatives=("ml.p3.2xlarge",))
    dearest = most(Cluster("ml.p3.2xlarge", count=2), price=price, max_runtime_s=3600)
    assert most(cluster, price=price, max_runtime_s=3600) == dearest
    more = Cluster("ml.g5.xlarge", alternatives=("ml.p3.2xlarge", "ml.p4d.24xlarge"))
    unknown = most(more, price=price)
    assert "no price of ml.p4d.24xlarge in us-east-1 is at hand" in unknown
    assert "instance-hours" in unknown
    assert "raysm prices --refresh --regions us-east-1" in unknown


def test_the_most_counts_the_volumes_of_all_instances_and_is_unknown_where_their_price_is():
    # 730 GB cost as much an hour as 1 GB does in a month: 0.14 USD in us-east-1.
    assert most(Cluster("ml.m5.large", count=2, volume_gb=730), max_runtime_s=3600).startswith("at most 0.51 USD with")
    unknown = most(Cluster("ml.m5.large"), "sa-east-1", lambda name, region: PRICE)
    assert "no price of the volume of ml.m5.large in sa-east-1 is at hand" in unknown
    assert most(Cluster("ml.g5.xlarge"), max_runtime_s=3600).startswith("at most 1.41 USD: 1 x ml.g5.xlarge")


BEGUN = datetime(2026, 11, 22, tzinfo=UTC)


def training(status="Completed", kind="ml.m5.large", count=2, volume_gb=0, **answer):
    resources = {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": volume_gb}
    resources |= answer.pop("resources", {})
    names = {"TrainingJobName": "a", "TrainingJobArn": "arn", "TrainingJobStatus": status}
    return read(TRAINING, {**names, "TrainingStartTime": BEGUN, "ResourceConfig": resources, **answer})


def priced(instance_type, region):
    return Price(usd_per_hour=3.6, origin="a test's") if instance_type == "ml.m5.large" else None


def test_billed_seconds_times_instances_times_the_price():
    bill = bill_of([training(BillableTimeInSeconds=100)], "us-east-1", priced)
    assert bill.usd == pytest.approx(2 * 100 * 0.001)
    assert bill.instance_s == 200
    assert lines(bill) == [("money", "0.20 USD: 2 x ml.m5.large, each billed for 100 s at 3.6 USD/h (a test's)")]


def test_a_volume_is_part_of_it_where_its_price_is_known_and_else_it_is_said_that_it_is_not():
    job = training(BillableTimeInSeconds=3600, volume_gb=730)
    assert bill_of([job], "us-east-1", priced).usd == pytest.approx(2 * (3.6 + 0.14))
    elsewhere = bill_of([job], "sa-east-1", priced)
    assert elsewhere.usd == pytest.approx(2 * 3.6)
    assert lines(elsewhere)[0][1].endswith("; volumes not counted")


def test_what_spot_capacity_saved_is_one_minus_billable_by_training_time():
    job = training(EnableManagedSpotTraining=True, BillableTimeInSeconds=90, TrainingTimeInSeconds=300)
    bill = bill_of([job], "us-east-1", priced)
    assert bill.spot_saving == pytest.approx(0.7)
    assert ("spot", "70% saved: so much less is billed than the training took") in lines(bill)
    assert bill_of([training(BillableTimeInSeconds=90, TrainingTimeInSeconds=300)], "us-east-1").spot_saving is None


def test_follow_up_jobs_are_part_of_it():
    jobs = [training("Stopped", BillableTimeInSeconds=100), training(BillableTimeInSeconds=50)]
    assert bill_of(jobs, "us-east-1", priced).usd == pytest.approx(2 * 150 * 0.001)
    assert bill_of([], "us-east-1") is None


def test_of_instance_groups_each_has_its_own_price_and_one_that_is_missing_hides_the_sum():
    groups = [{"InstanceType": "ml.m5.large", "InstanceCount": 1}, {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}]
    resources = {"InstanceGroups": groups}
    bill = bill_of([training(BillableTimeInSeconds=100, resources=resources)], "us-east-1", priced)
    assert [share.usd for share in bill.shares] == [pytest.approx(0.1), None]
    assert bill.usd is None


def test_a_job_that_never_got_an_instance_costs_nothing():
    waited = training("Failed", TrainingStartTime=None)
    assert bill_of([waited], "us-east-1", priced).usd == 0


def test_instances_that_stay_warm_are_named_with_what_they_cost_at_most():
    asked = {"KeepAlivePeriodInSeconds": 600}
    kept = bill_of([training(BillableTimeInSeconds=10, resources=asked)], "us-east-1", priced)
    assert kept.warm_usd == pytest.approx(2 * 600 * 0.001)
    assert lines(kept)[-1] == (
        "warm",
        "the instances are billed for up to 600 s more, 1.20 USD, while they wait for a job",
    )
    pool = {"Status": "Reused", "ResourceRetainedBillableTimeInSeconds": 50}
    over = bill_of([training(BillableTimeInSeconds=10, resources=asked, WarmPoolStatus=pool)], "us-east-1", priced)
    assert over.warm_usd == pytest.approx(2 * 50 * 0.001)
    assert lines(over)[-1][1] == "the instances were billed for 50 s more, 0.10 USD, while they wait for a job"
