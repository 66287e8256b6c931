"""The places of a grid, with their prices."""

from raysm.client.costs.prices import PriceTable, RegionPrices
from raysm.grid.placement import offers_of

TABLE = PriceTable.of([RegionPrices(region="us-east-1", as_of="2026-09", version="v7", usd={"ml.g5.xlarge": 1.4})])


def test_every_region_type_and_market_is_a_place_with_its_price_and_version():
    offers = offers_of(
        ["us-east-1", "eu-west-1"], ["ml.g5.xlarge", "ml.m5.large"], TABLE, count=3, markets=(False, True)
    )
    assert len(offers) == 8
    assert {(offer.usd_per_hour, offer.price_version) for offer in offers if offer.place.region == "us-east-1"} == {
        (1.4, "v7"),
        (None, ""),
    }
    assert {offer.count for offer in offers} == {3}
    assert sum(offer.place.spot for offer in offers) == 4


def test_what_the_table_does_not_know_has_no_price():
    (offer,) = offers_of(["eu-west-1"], ["ml.g5.xlarge"], TABLE)
    assert (offer.usd_per_hour, offer.price_version) == (None, "")


def test_the_order_is_the_users_and_nothing_stands_twice():
    offers = offers_of(["b-1", "a-1", "b-1"], ["ml.y.x", "ml.a.x"], TABLE)
    assert [(offer.place.instance_type, offer.place.region) for offer in offers] == [
        ("ml.y.x", "b-1"),
        ("ml.y.x", "a-1"),
        ("ml.a.x", "b-1"),
        ("ml.a.x", "a-1"),
    ]
