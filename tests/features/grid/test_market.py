"""What bars a place, and when a slow one is passed over."""

import pytest

from raysm.features.grid.market import Market, Place, Quota

EAST = Place(region="us-east-1", instance_type="ml.m5.large")


def test_what_others_use_of_a_quota_is_not_ours():
    quotas = {EAST: Quota(limit=4, used_by_others=2)}
    assert Market(quotas=quotas, in_use={EAST: 1}).bars(EAST, 1, 0) is None
    assert Market(quotas=quotas, in_use={EAST: 2}).bars(EAST, 1, 0) == (
        60,
        "all of the quota of 4 is in use",
    )


def test_what_a_place_has_given_is_used_again_though_it_refuses_more():
    market = Market(blocked={EAST: 60.0}, held={EAST: 4}, in_use={EAST: 3})
    assert market.bars(EAST, 1, 0) is None
    assert market.bars(EAST, 2, 0) == (60.0, "it refused for another 60 s")


@pytest.mark.parametrize(
    ("held", "in_use", "is_admitted"),
    [(0, 0, True), (0, 1, False), (4, 4, True), (4, 5, False), (40, 49, True), (40, 50, False)],
)
def test_a_place_that_had_no_more_is_tried_with_a_few_at_a_time(held, in_use, is_admitted):
    bars = Market(held={EAST: held}, in_use={EAST: in_use}).bars(EAST, 1, 0)
    assert (bars is None) is is_admitted
