"""Prices, quotas and instances of the regions of a scenario, as raysm's own readers of AWS's answers read them."""

from dataclasses import replace
from random import Random

import pytest

from raysm.client.costs.prices import prices_of_products
from raysm.contract.job_api import TRAINING
from raysm.grid.endings import LearnedQuota, parse_quota
from raysm.grid.place import Place
from raysm.grid.planning import quota_place
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.local.server.market import PRICES, QUOTAS, JobInstances, MarketService, Stock
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError
from tests.support.hand_clock import HandClock

TYPE = "ml.p4d.24xlarge"
PRODUCTS = f"{PRICES}GetProducts"
LIST_QUOTAS = f"{QUOTAS}ListServiceQuotas"


def request(count=1, instance_type=TYPE, **more):
    return {"ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count}, **more}


def record(name, region="us-east-1", **fields):
    asked = request(**fields)
    return JobRecord(kind="training", name=name, arn=name, region=region, request=asked, created_s=1.0, modified_s=1.0)


def stock(folder, **tables):
    clock = HandClock()
    records = Records(folder, clock)
    return Stock(Scenario(**tables), records), records


def test_a_job_gets_all_of_its_instances_or_none(tmp_path):
    here, _ = stock(tmp_path, capacity=Capacity(instances={TYPE: 4}))
    assert here.take(record("a", count=3))
    assert not here.take(record("b", count=2))
    assert here.take(record("c", count=1))
    here.give_back(record("a", count=3))
    assert here.take(record("b", count=2))


def test_each_region_has_its_own_and_types_that_are_not_named_have_no_end(tmp_path):
    here, _ = stock(tmp_path, regions={"eu-west-1": Scenario(capacity=Capacity(instances={TYPE: 1}))})
    assert here.take(record("a", "eu-west-1"))
    assert not here.take(record("b", "eu-west-1"))
    assert here.take(record("b", count=1000))
    assert here.take(record("c", "eu-west-1", instance_type="ml.m5.large", count=1000))


def choosing(records, name, *types, count=2):
    resources = {"InstancePreferences": [{"InstanceType": each} for each in types], "InstanceCount": count}
    made = replace(record(name), request={"ResourceConfig": resources})
    records.add(made)
    return made


def test_of_a_choice_a_job_gets_the_first_type_that_there_is_and_gives_that_back(tmp_path):
    here, records = stock(tmp_path, capacity=Capacity(instances={TYPE: 2, "ml.g5.xlarge": 2}))
    first, second, third = (choosing(records, name, TYPE, "ml.g5.xlarge") for name in "abc")
    assert [here.take(each) for each in (first, second, third)] == [True, True, False]
    told = [records.get(TRAINING, name).request["ResourceConfig"].get("SelectedInstanceType") for name in "abc"]
    assert told == [TYPE, "ml.g5.xlarge", None]
    # By what it has, and not by what it wanted most.
    here.give_back(second)
    assert not here.take(record("d", count=1))
    assert here.take(third)


def test_a_choice_is_refused_where_no_type_of_it_fits_its_quota(tmp_path):
    here, _ = stock(tmp_path, market=Market(quotas={TYPE: 1, "ml.g5.xlarge": 4}))
    types = [{"InstanceType": TYPE}, {"InstanceType": "ml.g5.xlarge"}]
    asked = {"ResourceConfig": {"InstancePreferences": types, "InstanceCount": 4}}
    here.check_quota(TRAINING, asked, "us-east-1")
    asked["ResourceConfig"]["InstanceCount"] = 5
    with pytest.raises(ApiError, match=f"'{TYPE} for training job usage' is 1 Instances"):
        here.check_quota(TRAINING, asked, "us-east-1")


def test_a_quota_refuses_what_goes_beyond_it_in_words_that_a_grid_learns_from(tmp_path):
    here, records = stock(tmp_path, market=Market(quotas={TYPE: 4}))
    records.add(record("a", count=3))
    here.check_quota(TRAINING, request(1), "us-east-1")
    with pytest.raises(ApiError) as refused:
        here.check_quota(TRAINING, request(2), "us-east-1")
    assert refused.value.code == "ResourceLimitExceeded"
    assert f"'{TYPE} for training job usage' is 4 Instances, with current utilization of 3" in refused.value.message
    assert parse_quota(refused.value.message) == LearnedQuota(limit=4, used=3)


def test_a_job_that_has_ended_counts_no_more(tmp_path):
    here, records = stock(tmp_path, market=Market(quotas={TYPE: 1}))
    records.add(record("a"))
    records.update(TRAINING, "a", status="Completed")
    here.check_quota(TRAINING, request(1), "us-east-1")


def test_spot_has_a_quota_of_its_own(tmp_path):
    here, records = stock(tmp_path, market=Market(quotas={TYPE: 1}, spot_quotas={TYPE: 2}))
    records.add(record("a"))
    here.check_quota(TRAINING, request(2, EnableManagedSpotTraining=True), "us-east-1")
    with pytest.raises(ApiError, match="for spot training job usage' is 2"):
        here.check_quota(TRAINING, request(3, EnableManagedSpotTraining=True), "us-east-1")


def test_instances_are_taken_back_at_a_line_once_for_each_of_the_words_of_its_region(tmp_path):
    words = ("epoch 3", "epoch 5")
    here, _ = stock(tmp_path, regions={"eu-west-1": Scenario(capacity=Capacity(interrupted_at=words))})
    assert not here.interrupts("us-east-1", "epoch 3 of 9")
    lines = ["epoch 1 of 9", "epoch 3 of 9", "epoch 3 of 9", "epoch 5 of 9", "epoch 5 of 9"]
    assert [here.interrupts("eu-west-1", line) for line in lines] == [False, True, False, True, False]


def test_a_share_of_the_time_on_spot_capacity_alone_is_not_billed(tmp_path):
    here, _ = stock(tmp_path, market=Market(spot_saving=0.6))
    asked = request(EnableManagedSpotTraining=True)
    assert (here.spot_saving(asked, "us-east-1"), here.spot_saving(request(), "us-east-1")) == (0.6, 0.0)


@pytest.fixture
def market():
    far = Market(usd_per_hour={TYPE: 30.0}, quotas={TYPE: 4}, spot_quotas={TYPE: 2})
    near = Market(usd_per_hour={TYPE: 25.0, "ml.m5.large": 0.1})
    return MarketService(Scenario(market=near, regions={"eu-west-1": Scenario(market=far)}))


def products(market, **fields):
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    request = {"ServiceCode": "AmazonSageMaker", "Filters": filters}
    return market.answer(PRODUCTS, request, "us-east-1")["PriceList"]


def test_prices_are_those_of_the_region_that_a_filter_names_with_their_date(market):
    (far,) = prices_of_products(products(market, regionCode="eu-west-1"), "here")
    assert (far.region, far.as_of, far.version, dict(far.usd)) == ("eu-west-1", "2026-11-01", "20261101", {TYPE: 30.0})
    (near,) = prices_of_products(products(market, regionCode="us-east-1", instanceName=TYPE), "here")
    assert dict(near.usd) == {TYPE: 25.0}


def test_quotas_are_those_of_the_region_that_is_asked_and_named_as_a_grid_reads_them(market):
    listed = market.answer(LIST_QUOTAS, {"ServiceCode": "sagemaker"}, "eu-west-1")["Quotas"]
    places = {quota_place(each["QuotaName"], "eu-west-1"): each["Value"] for each in listed}
    assert places[Place(region="eu-west-1", instance_type=TYPE)] == 4
    assert places[Place(region="eu-west-1", instance_type=TYPE, spot=True)] == 2
    assert market.answer(LIST_QUOTAS, {"ServiceCode": "sagemaker"}, "us-east-1") == {"Quotas": []}


def test_the_instances_of_a_job_come_by_chance_and_are_given_back_once(tmp_path):
    here, _ = stock(tmp_path, capacity=Capacity(instances={TYPE: 1}))

    def instances(**capacity):
        return JobInstances(here, Capacity(**capacity), record("a"), Random(1))

    unlucky, first, second = instances(insufficient=1.0), instances(), instances()
    assert [unlucky.take(), first.take(), second.take()] == [False, True, False]
    first.give_back()
    first.give_back()
    assert second.take()


def test_starts_and_interruptions_are_drawn_by_the_scenario(tmp_path):
    here, _ = stock(tmp_path)
    mine = JobInstances(
        here, Capacity(start_delay_s=100.0, start_spread=0.5, interruptions_per_hour=1.0), record("a"), Random(1)
    )
    starts = [mine.draw_start_s() for _ in range(1000)]
    assert 50 <= min(starts) < 60 < 140 < max(starts) <= 150
    assert 0 < mine.draw_interruption_s(spot=True) < float("inf") == mine.draw_interruption_s(spot=False)
