"""The table of prices, and the bills of jobs: real types, dated, and nothing of what is not in it."""

import json
import re
from datetime import UTC, date, datetime

import pytest

from raysm import Cluster, JobRequest, Limits, Script
from raysm.core.client.checks import instance_types
from raysm.core.client.costs.bill import bill_of, lines, most_expensive
from raysm.core.client.costs.prices import (
    Price,
    RegionPrices,
    fetch_prices,
    known_prices,
    price_of,
    price_of_user,
    prices_of_products,
    save_prices,
    volume_usd_per_hour,
)
from raysm.core.client.job.description import read
from raysm.core.client.service import Service
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import AWS
from raysm.errors import ServiceError
from raysm.features.session.request import SessionWorkload


def test_every_price_is_of_a_type_that_sagemaker_has_and_says_where_and_when_it_was_so():
    for (region, name), price in known_prices().prices.items():
        assert name in instance_types(TRAINING)
        assert price.usd_per_hour > 0
        assert re.fullmatch(rf"on demand in {region}, as of 20\d\d(-\d\d(-\d\d)?)?", price.origin)


def test_a_price_is_that_of_its_own_region_and_of_no_other():
    assert price_of("ml.p5.48xlarge", "us-east-1").usd_per_hour == 63.296
    assert price_of("ml.p5.48xlarge", "ap-south-1").usd_per_hour == 75.9575
    assert price_of("ml.p5.48xlarge", "eu-west-1") is None
    assert price_of("ml.none.large", "us-east-1") is None


def brought(region="eu-west-1", as_of="2026-11-01", version="20261101000000", **more):
    return RegionPrices(
        region=region, as_of=as_of, version=version, usd={"ml.g5.xlarge": 2.0}, **more
    )


def test_a_list_that_was_refreshed_counts_from_then_on_and_says_its_version(tmp_path, caplog):
    assert known_prices(tmp_path).price("ml.g5.xlarge", "eu-west-1") is None
    save_prices(brought(volume_gb_month=0.2), tmp_path)
    price = known_prices(tmp_path).price("ml.g5.xlarge", "eu-west-1")
    assert (price.usd_per_hour, price.version, price.as_of) == (2.0, "20261101000000", "2026-11-01")
    assert known_prices(tmp_path).volume_usd_per_hour(
        "ml.m5.large", 73, "eu-west-1"
    ) == pytest.approx(0.02)
    # What another region's list says stays.
    assert known_prices(tmp_path).price("ml.g5.xlarge", "us-east-1").version == "raysm-2026-09"
    # A damaged list is reported, and the others stay.
    save_prices(brought(), tmp_path).write_text("{")
    assert known_prices(tmp_path).price("ml.g5.xlarge", "us-east-1") is not None
    assert "raysm prices --refresh writes them anew" in caplog.text


def test_the_age_of_a_price_counts_from_the_first_day_that_its_date_may_mean():
    today = date(2026, 11, 22)
    assert price_of("ml.p5.48xlarge", "ap-south-1").age_days(today) == 62
    assert price_of("ml.m5.large", "us-east-1").age_days(today) == (today - date(2026, 9, 1)).days
    assert price_of("ml.m5.xlarge", "us-east-1").age_days(today) == (today - date(2025, 1, 1)).days
    assert price_of_user(1.0).age_days(today) is None


def test_a_volume_costs_by_the_month_and_nothing_where_the_type_has_disks_of_its_own():
    assert volume_usd_per_hour("ml.m5.large", 100, "us-east-1") == pytest.approx(14 / 730)
    assert volume_usd_per_hour("ml.g5.xlarge", 100, "us-east-1") == 0
    assert volume_usd_per_hour("ml.m5.large", 100, "sa-east-1") is None


def product(unit="Hrs", usd="1.408", **attributes):
    attributes = {
        "instanceName": "ml.g5.xlarge", "regionCode": "us-east-1", "platoinstancetype": "Training",
        "usagetype": "USE1-Train:ml.g5.xlarge", **attributes,
    }  # fmt: skip
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return {
        "product": {"sku": "A", "productFamily": "ML Instance", "attributes": attributes},
        "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}},
        "version": "20260921172504",
        "publicationDate": "2026-09-21T17:25:04Z",
    }


class Pricing:
    """GetProducts, a product a page."""

    def __init__(self, *products):
        self.products = products
        self.asked = []

    def get_products(self, **request):
        self.asked.append(request)
        page = int(request.get("NextToken", 0))
        more = {"NextToken": str(page + 1)} if page + 1 < len(self.products) else {}
        return {"PriceList": [json.dumps(self.products[page])], **more}

    @property
    def service(self):
        return Service(
            AWS(role="arn:aws:iam::123456789012:role/r", region="us-east-1"),
            clients=lambda name: self,
        )


def test_all_pages_of_a_region_are_fetched():
    client = Pricing(product(), product(instanceName="ml.m5.large", usd="0.115"))
    prices = fetch_prices(client.service)
    assert prices.usd == {"ml.g5.xlarge": 1.408, "ml.m5.large": 0.115}
    assert (prices.as_of, prices.version) == ("2026-09-21", "20260921172504")
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"} in client.asked[0][
        "Filters"
    ]
    assert len(client.asked) == 2
    assert (
        fetch_prices(Pricing(product(regionCode="eu-west-1")).service, "eu-west-1").region
        == "eu-west-1"
    )
    with pytest.raises(ServiceError, match="no prices of us-east-1"):
        fetch_prices(Pricing(product(regionCode="eu-west-1")).service)


@pytest.mark.parametrize(
    "other",
    [product(usd="1.2"), product(usd="9", instanceName="NA")],
    ids=["of two the dearer counts", "no instance"],
)
def test_what_is_no_price_of_training_is_passed_over(other):
    (one,) = prices_of_products([json.dumps(product()), json.dumps(other)], "GetProducts")
    assert dict(one.usd) == {"ml.g5.xlarge": 1.408}


PRICE = Price(usd_per_hour=3.6, origin="a test's")


def most(cluster, region="us-east-1", price=price_of, **limits):
    request = JobRequest(
        name="a", workload=Script("s.py"), cluster=cluster, limits=Limits(**limits)
    )
    return most_expensive(request, region, price)


def test_of_a_job_about_which_nothing_is_known_its_limit_says_what_it_costs_at_most():
    assert most(Cluster("ml.m5.large", count=2), max_runtime_s=3600) == (
        "at most 0.24 USD with the volumes: 2 x ml.m5.large at 0.115 USD/h (on demand in us-east-1, as of 2026-09), "
        "for the 60 min that it may take, 2.0 instance-hours"
    )


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        (
            100,
            "at most 72.00 USD: 3 USD an hour for the 24.0 h that it may take, 48.0 instance-hours",
        ),
        (
            2,
            "at most 2.00 USD, its budget, which lasts 40 min from the head's start at 3 USD an hour",
        ),
    ],
)
def test_a_session_costs_at_most_its_budget_at_the_price_that_its_user_gave(budget, amount):
    session = SessionWorkload(max_cost=budget, usd_per_hour=3.0)
    spot = Limits(spot=True)
    request = JobRequest(
        name="a", workload=session, cluster=Cluster("ml.new.large", count=2), limits=spot
    )
    end = "; it ends after 30 min without a call, or after 5 min without a client; spot capacity costs less"
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
    assert most(Cluster("ml.m5.large", count=2, volume_gb=730), max_runtime_s=3600).startswith(
        "at most 0.51 USD with"
    )
    unknown = most(Cluster("ml.m5.large"), "sa-east-1", lambda name, region: PRICE)
    assert "no price of the volume of ml.m5.large in sa-east-1 is at hand" in unknown
    assert most(Cluster("ml.g5.xlarge"), max_runtime_s=3600).startswith(
        "at most 1.41 USD: 1 x ml.g5.xlarge"
    )


BEGUN = datetime(2026, 11, 22, tzinfo=UTC)


def training(status="Completed", kind="ml.m5.large", count=2, volume_gb=0, **answer):
    resources = {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": volume_gb}
    resources |= answer.pop("resources", {})
    names = {"TrainingJobName": "a", "TrainingJobArn": "arn", "TrainingJobStatus": status}
    return read(
        TRAINING, {**names, "TrainingStartTime": BEGUN, "ResourceConfig": resources, **answer}
    )


def priced(instance_type, region):
    return Price(usd_per_hour=3.6, origin="a test's") if instance_type == "ml.m5.large" else None


def test_billed_seconds_times_instances_times_the_price():
    bill = bill_of([training(BillableTimeInSeconds=100)], "us-east-1", priced)
    assert bill.usd == pytest.approx(2 * 100 * 0.001)
    assert bill.instance_s == 200
    assert lines(bill) == [
        ("money", "0.20 USD: 2 x ml.m5.large, each billed for 100 s at 3.6 USD/h (a test's)")
    ]


def test_a_volume_is_part_of_it_where_its_price_is_known_and_else_it_is_said_that_it_is_not():
    job = training(BillableTimeInSeconds=3600, volume_gb=730)
    assert bill_of([job], "us-east-1", priced).usd == pytest.approx(2 * (3.6 + 0.14))
    elsewhere = bill_of([job], "sa-east-1", priced)
    assert elsewhere.usd == pytest.approx(2 * 3.6)
    assert lines(elsewhere)[0][1].endswith("; volumes not counted")


def test_what_spot_capacity_saved_is_one_minus_billable_by_training_time():
    job = training(
        EnableManagedSpotTraining=True, BillableTimeInSeconds=90, TrainingTimeInSeconds=300
    )
    bill = bill_of([job], "us-east-1", priced)
    assert bill.spot_saving == pytest.approx(0.7)
    assert ("spot", "70% saved: so much less is billed than the training took") in lines(bill)
    assert (
        bill_of(
            [training(BillableTimeInSeconds=90, TrainingTimeInSeconds=300)], "us-east-1"
        ).spot_saving
        is None
    )


def test_follow_up_jobs_are_part_of_it():
    jobs = [training("Stopped", BillableTimeInSeconds=100), training(BillableTimeInSeconds=50)]
    assert bill_of(jobs, "us-east-1", priced).usd == pytest.approx(2 * 150 * 0.001)
    assert bill_of([], "us-east-1") is None


def test_of_instance_groups_each_has_its_own_price_and_one_that_is_missing_hides_the_sum():
    groups = [
        {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
    ]
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
    over = bill_of(
        [training(BillableTimeInSeconds=10, resources=asked, WarmPoolStatus=pool)],
        "us-east-1",
        priced,
    )
    assert over.warm_usd == pytest.approx(2 * 50 * 0.001)
    assert (
        lines(over)[-1][1]
        == "the instances were billed for 50 s more, 0.10 USD, while they wait for a job"
    )
