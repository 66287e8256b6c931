"""Shares and moments of a scenario: what is none is refused, and a spread is kept to."""

import random

import pytest

from raysm.errors import InvalidRequest
from raysm.local.shares import check_pairs, check_shares, drawn, within


@pytest.mark.parametrize("share", [-0.1, 1.1, 50.0])
def test_a_share_is_from_nothing_to_all(share):
    check_shares("market", spot_saving=0.0)
    check_shares("market", spot_saving=1.0)
    with pytest.raises(InvalidRequest, match=r"market\.spot_saving is a share from 0 to 1, got"):
        check_shares("market", spot_saving=share)


@pytest.mark.parametrize("pair", [(1.0,), (2.0, 1.0), (1.0, 1.0), (1.0, 2.0, 3.0)])
def test_moments_are_pairs_the_first_before_the_second(pair):
    check_pairs("capacity.gone", ((1.0, 2.0),))
    with pytest.raises(InvalidRequest, match=r"capacity\.gone are pairs"):
        check_pairs("capacity.gone", ((1.0, 2.0), pair))


def test_a_pair_has_its_first_moment_and_not_its_last():
    assert [within(((1.0, 2.0), (4.0, 5.0)), at) for at in (0.9, 1.0, 1.9, 2.0, 4.5)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_what_differs_by_a_share_differs_by_no_more_and_without_one_not_at_all():
    chance = random.Random(1)
    draws = [drawn(100.0, 0.2, chance) for _ in range(1000)]
    assert 80 <= min(draws) < 90 < 110 < max(draws) <= 120
    assert drawn(100.0, 0.0, chance) == 100.0
