"""Prices, quotas and instances of the regions of a scenario, as raysm's own readers of AWS's answers read them."""

from dataclasses import replace
from random import Random

import pytest

from raysm.client.costs.prices import prices_of_products
from raysm.contract.job_api import TRAINING
from raysm.grid.endings import parse_quota
from raysm.grid.place import Place
from raysm.grid.plan import quota_place
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.local.server.market import PRICES, QUOTAS, MarketService, Stock, draw_interruption_s
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError
from tests.support.hand_clock import HandClock

TYPE = "ml.p4d.24xlarge"
PRODUCTS = f"{PRICES}GetProducts"
CHANCE = Random(1)
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
    assert here.take(record("a", count=3), CHANCE)
    assert not here.take(record("b", count=2), CHANCE)
    assert here.take(record("c", count=1), CHANCE)
    here.give_back(record("a", count=3))
    assert here.take(record("b", count=2), CHANCE)


def choosing(records, name, *types, count=2):
    resources = {"InstancePreferences": [{"InstanceType": each} for each in types], "InstanceCount": count}
    made = replace(record(name), request={"ResourceConfig": resources})
    records.add(made)
    return made


def test_of_a_choice_a_job_gets_the_first_type_that_there_is_and_gives_that_back(tmp_path):
    here, records = stock(tmp_path, capacity=Capacity(instances={TYPE: 2, "ml.g5.xlarge": 2}))
    first, second, third = (choosing(records, name, TYPE, "ml.g5.xlarge") for name in "abc")
    assert [here.take(each, CHANCE) for each in (first, second, third)] == [True, True, False]
    told = [records.get(TRAINING, name).request["ResourceConfig"].get("SelectedInstanceType") for name in "abc"]
    assert told == [TYPE, "ml.g5.xlarge", None]
    # By what it has, and not by what it wanted most.
    here.give_back(second)
    assert not here.take(record("d", count=1), CHANCE)
    assert here.take(third, CHANCE)


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
    assert parse_quota(refused.value.message) == (4, 3)


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


def test_instances_come_by_chance_and_are_given_back_once(tmp_path):
    unlucky, _ = stock(tmp_path / "unlucky", capacity=Capacity(insufficient=1.0))
    assert not unlucky.take(record("a"), CHANCE)
    here, _ = stock(tmp_path / "here", capacity=Capacity(instances={TYPE: 1}))
    assert here.take(record("a"), CHANCE)
    here.give_back(record("a"))
    here.give_back(record("a"))
    assert here.take(record("b"), CHANCE)
    assert not here.take(record("c"), CHANCE)


def test_interruptions_are_drawn_for_spot_capacity_alone():
    often = Capacity(interruptions_per_hour=1.0)
    assert 0 < draw_interruption_s(often, CHANCE, spot=True) < float("inf")
    assert draw_interruption_s(often, CHANCE, spot=False) == float("inf")
