"""The table of prices: of real types, dated, and nothing of what is not in it."""

import re

import pytest

from raysm.client.costs.prices import all_prices, price_of, price_of_user, volume_usd_per_hour
from raysm.client.service_model_check import instance_types
from raysm.contract.job_api import TRAINING


def test_every_price_is_of_a_type_that_sagemaker_has_and_says_where_and_when_it_was_so():
    for (region, name), price in all_prices().items():
        assert name in instance_types(TRAINING)
        assert price.usd_per_hour > 0
        assert re.fullmatch(rf"on demand in {region}, as of 20\d\d(-\d\d(-\d\d)?)?", price.origin)


def test_a_price_is_that_of_its_own_region_and_of_no_other():
    assert price_of("ml.p5.48xlarge", "us-east-1").usd_per_hour == 63.296
    assert price_of("ml.p5.48xlarge", "ap-south-1").usd_per_hour == 75.9575
    assert price_of("ml.p5.48xlarge", "eu-west-1") is None
    assert price_of("ml.none.large", "us-east-1") is None


def test_a_price_is_shown_with_its_date_and_one_that_was_given_with_its_flag():
    assert str(price_of("ml.m5.large", "us-east-1")) == "0.115 USD/h (on demand in us-east-1, as of 2026-09)"
    assert str(price_of_user(3.5)) == "3.5 USD/h (--price-per-hour)"


def test_a_volume_costs_by_the_month_and_nothing_where_the_type_has_disks_of_its_own():
    assert volume_usd_per_hour("ml.m5.large", 100, "us-east-1") == pytest.approx(14 / 730)
    assert volume_usd_per_hour("ml.g5.xlarge", 100, "us-east-1") == 0
    assert volume_usd_per_hour("ml.m5.large", 100, "sa-east-1") is None
