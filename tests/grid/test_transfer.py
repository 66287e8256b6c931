"""What data cost on their way between regions."""

import pytest

from raysm.grid.placement import AS_OF, transfer_usd, usd_per_gb


@pytest.mark.parametrize(
    ("source", "target", "usd"),
    [
        ("us-east-1", "us-east-1", 0.0),
        ("us-east-1", "us-east-2", 0.01),
        ("us-east-2", "us-east-1", 0.01),
        ("us-east-1", "us-west-2", 0.02),
        ("eu-central-1", "us-east-1", 0.02),
        ("ap-south-1", "us-east-1", None),
        ("us-gov-west-1", "us-east-1", None),
    ],
)
def test_a_gb_costs_by_where_it_comes_from_and_elsewhere_nobody_knows(source, target, usd):
    assert usd_per_gb(source, target) == usd


def test_a_terabyte_between_regions_is_twenty_dollars():
    assert transfer_usd("eu-central-1", "us-east-1", 10**12) == pytest.approx(20.0)


def test_what_is_not_moved_costs_nothing_and_what_is_not_known_is_unknown():
    assert transfer_usd(None, "us-east-1", None) == 0
    assert transfer_usd("us-east-1", "us-east-1", None) == 0
    assert transfer_usd("us-east-1", "eu-west-1", None) is None
    assert transfer_usd("sa-east-1", "eu-west-1", 10) is None
    assert AS_OF == "2026-11"
