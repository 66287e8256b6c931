"""Prices and quotas of a scenario, as raysm's own readers of AWS's answers read them."""

import pytest

from raysm.client.costs.offer_file import prices_of_products
from raysm.grid.place import Place
from raysm.grid.quotas import quota_place
from raysm.local.scenario import Market, Scenario
from raysm.local.server.api_error import ApiError
from raysm.local.server.market import MarketService

TYPE = "ml.p4d.24xlarge"
PRODUCTS = "AWSPriceListService.GetProducts"
QUOTAS = "ServiceQuotasV20190624.ListServiceQuotas"


@pytest.fixture
def market():
    far = Market(usd_per_hour={TYPE: 30.0}, quotas={TYPE: 4}, spot_quotas={TYPE: 2}, published="2026-11-20")
    near = Market(usd_per_hour={TYPE: 25.0, "ml.m5.large": 0.1})
    return MarketService(Scenario(market=near, regions={"eu-west-1": Scenario(market=far)}))


def products(market, **fields):
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    request = {"ServiceCode": "AmazonSageMaker", "Filters": filters}
    return market.answer(PRODUCTS, request, "us-east-1")["PriceList"]


def test_prices_are_those_of_the_region_that_a_filter_names_with_their_date(market):
    (far,) = prices_of_products(products(market, regionCode="eu-west-1"), "here")
    assert (far.region, far.as_of, far.version, dict(far.usd)) == ("eu-west-1", "2026-11-20", "20261120", {TYPE: 30.0})
    (near,) = prices_of_products(products(market, regionCode="us-east-1", instanceName=TYPE), "here")
    assert dict(near.usd) == {TYPE: 25.0}


def test_without_a_region_those_of_all_are_told(market):
    assert {each.region for each in prices_of_products(products(market), "here")} == {"us-east-1", "eu-west-1"}


def test_prices_come_by_pages(market):
    request = {"ServiceCode": "AmazonSageMaker", "MaxResults": 2}
    first = market.answer(PRODUCTS, request, "us-east-1")
    second = market.answer(PRODUCTS, {**request, "NextToken": first["NextToken"]}, "us-east-1")
    assert (len(first["PriceList"]), len(second["PriceList"]), "NextToken" in second) == (2, 1, False)


def test_quotas_are_those_of_the_region_that_is_asked_and_named_as_a_grid_reads_them(market):
    listed = market.answer(QUOTAS, {"ServiceCode": "sagemaker"}, "eu-west-1")["Quotas"]
    places = {quota_place(each["QuotaName"], "eu-west-1"): each["Value"] for each in listed}
    assert places[Place(region="eu-west-1", instance_type=TYPE)] == 4
    assert places[Place(region="eu-west-1", instance_type=TYPE, spot=True)] == 2
    assert market.answer(QUOTAS, {"ServiceCode": "sagemaker"}, "us-east-1") == {"Quotas": []}


def test_a_quota_is_told_by_its_code_too(market):
    (listed, *_) = market.answer(QUOTAS, {"ServiceCode": "sagemaker"}, "eu-west-1")["Quotas"]
    asked = {"ServiceCode": "sagemaker", "QuotaCode": listed["QuotaCode"]}
    target = "ServiceQuotasV20190624.GetServiceQuota"
    assert market.answer(target, asked, "eu-west-1") == {"Quota": listed}
    with pytest.raises(ApiError, match="there is no quota 'L-0'"):
        market.answer(target, {"ServiceCode": "sagemaker", "QuotaCode": "L-0"}, "eu-west-1")


def test_nothing_is_left_to_the_defaults_of_aws(market):
    target = "ServiceQuotasV20190624.ListAWSDefaultServiceQuotas"
    assert market.answer(target, {"ServiceCode": "sagemaker"}, "eu-west-1") == {"Quotas": []}


def test_what_is_of_other_services_is_left_to_others(market):
    assert market.answer(QUOTAS, {"ServiceCode": "vpc"}, "eu-west-1") is None
    assert market.answer("AWSPriceListService.DescribeServices", {"ServiceCode": "AmazonSageMaker"}, "r") is None
