"""The table of prices: of real types, dated, and nothing of what is not in it."""

import json
import re
from datetime import date

import pytest

from raysm.client.checks import instance_types
from raysm.client.costs.prices import (
    RegionPrices,
    fetch_prices,
    known_prices,
    price_of,
    price_of_user,
    prices_of_products,
    save_prices,
    volume_usd_per_hour,
)
from raysm.client.service import Service
from raysm.contract.job_api import TRAINING
from raysm.errors import ServiceError
from raysm.request import AWS


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
    return RegionPrices(region=region, as_of=as_of, version=version, usd={"ml.g5.xlarge": 2.0}, **more)


def test_a_list_that_was_refreshed_counts_from_then_on_and_says_its_version(tmp_path, caplog):
    assert known_prices(tmp_path).price("ml.g5.xlarge", "eu-west-1") is None
    save_prices(brought(volume_gb_month=0.2), tmp_path)
    price = known_prices(tmp_path).price("ml.g5.xlarge", "eu-west-1")
    assert (price.usd_per_hour, price.version, price.as_of) == (2.0, "20261101000000", "2026-11-01")
    assert known_prices(tmp_path).volume_usd_per_hour("ml.m5.large", 73, "eu-west-1") == pytest.approx(0.02)
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
        return Service(AWS(role="arn:aws:iam::123456789012:role/r", region="us-east-1"), clients=lambda name: self)


def test_all_pages_of_a_region_are_fetched():
    client = Pricing(product(), product(instanceName="ml.m5.large", usd="0.115"))
    prices = fetch_prices(client.service)
    assert prices.usd == {"ml.g5.xlarge": 1.408, "ml.m5.large": 0.115}
    assert (prices.as_of, prices.version) == ("2026-09-21", "20260921172504")
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"} in client.asked[0]["Filters"]
    assert len(client.asked) == 2
    assert fetch_prices(Pricing(product(regionCode="eu-west-1")).service, "eu-west-1").region == "eu-west-1"
    with pytest.raises(ServiceError, match="has no prices of us-east-1"):
        fetch_prices(Pricing(product(regionCode="eu-west-1")).service)


@pytest.mark.parametrize(
    "other", [product(usd="1.2"), product(usd="9", instanceName="NA")], ids=["of two the dearer counts", "no instance"]
)
def test_what_is_no_price_of_training_is_passed_over(other):
    (one,) = prices_of_products([json.dumps(product()), json.dumps(other)], "GetProducts")
    assert dict(one.usd) == {"ml.g5.xlarge": 1.408}
