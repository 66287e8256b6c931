"""What a job has cost: AWS's formula, what spot has saved, warm pools, and what nobody knows."""

from datetime import UTC, datetime, timedelta

import pytest

from raysm.client.costs.bill import bill_of, lines
from raysm.client.costs.prices import Price
from raysm.client.job.description import read
from raysm.contract.job_api import PROCESSING, TRAINING

BEGUN = datetime(2026, 11, 22, tzinfo=UTC)


def training(status="Completed", kind="ml.m5.large", count=2, volume_gb=0, **answer):
    resources = {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": volume_gb}
    resources |= answer.pop("resources", {})
    names = {"TrainingJobName": "a", "TrainingJobArn": "arn", "TrainingJobStatus": status}
    return read(TRAINING, {**names, "TrainingStartTime": BEGUN, "ResourceConfig": resources, **answer})


def processing(**answer):
    names = {"ProcessingJobName": "a", "ProcessingJobArn": "arn", "ProcessingJobStatus": "Completed"}
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 3, "VolumeSizeInGB": 0}
    return read(PROCESSING, {**names, "ProcessingResources": {"ClusterConfig": cluster}, **answer})


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


def test_a_processing_job_s_time_is_from_its_begin_to_its_end_and_said_to_be_about():
    ended = BEGUN + timedelta(seconds=40)
    bill = bill_of([processing(ProcessingStartTime=BEGUN, ProcessingEndTime=ended)], "us-east-1", priced)
    assert bill.usd == pytest.approx(3 * 40 * 0.001)
    assert "each billed for about 40 s" in lines(bill)[0][1]


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


def test_as_json_it_has_the_price_with_its_date():
    bill = bill_of([training(BillableTimeInSeconds=36)], "us-east-1")
    assert bill.as_dict() == {
        "usd": pytest.approx(2 * 36 / 3600 * 0.115),
        "instance_s": 72,
        "spot_saving": None,
        "warm_s": 0,
        "warm_usd": 0,
        "shares": [
            {
                "instance_type": "ml.m5.large",
                "count": 2,
                "billed_s": 36,
                "usd_per_hour": 0.115,
                "price": "on demand in us-east-1, as of 2026-09",
                "volume_usd_per_hour": 0,
            }
        ],
    }
