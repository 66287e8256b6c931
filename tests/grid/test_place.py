"""The seam between controller and placement: what bars a place, and the placement that takes the first one."""

import pytest

from raysm.grid.place import FirstAdmitted, Market, Offer, Place, Quota
from raysm.grid.task import Task

EAST = Place(region="us-east-1", instance_type="ml.m5.large")
WEST = Place(region="eu-west-1", instance_type="ml.m5.large")
BOTH = FirstAdmitted([Offer(place=EAST), Offer(place=WEST)])


def test_a_place_is_named_for_people():
    assert (
        str(Place(region="eu-west-1", instance_type="ml.p4d.24xlarge", spot=True))
        == "ml.p4d.24xlarge in eu-west-1 (spot)"
    )


def test_the_first_place_is_taken():
    assert BOTH.choose(Task(key="a"), (), Market(), 0).offer.place == EAST


def test_a_row_goes_where_its_data_lie():
    assert BOTH.choose(Task(key="a", region="eu-west-1"), (), Market(), 0).offer.place == WEST


def test_a_blocked_place_is_passed_over_and_the_reason_kept():
    choice = BOTH.choose(Task(key="a"), (), Market(blocked={EAST: 60.0}), 0)
    assert choice.offer.place == WEST
    assert choice.reasons == {str(EAST): "it refused for another 60 s"}


def test_where_all_are_blocked_it_is_asked_again_when_the_first_opens():
    choice = BOTH.choose(Task(key="a"), (), Market(blocked={EAST: 60.0}, closed={"eu-west-1": 30.0}), 0)
    assert (choice.offer, choice.again_s) == (None, 30.0)


def test_a_quota_smaller_than_the_job_never_fits():
    quotas = {EAST: Quota(limit=1), WEST: Quota(limit=1)}
    choice = BOTH.choose(Task(key="a", count=2), (), Market(quotas=quotas), 0)
    assert (choice.offer, choice.again_s) == (None, None)
    assert choice.reasons[str(EAST)] == "the quota is 1 of ml.m5.large, and the job takes 2"


def test_what_others_use_of_a_quota_is_not_ours():
    quotas = {EAST: Quota(limit=4, used_by_others=2)}
    assert Market(quotas=quotas, in_use={EAST: 1}).bars(EAST, 1, 0) is None
    assert Market(quotas=quotas, in_use={EAST: 2}).bars(EAST, 1, 0) == (60, "all of the quota of 4 is in use")


def test_a_row_that_asks_for_what_no_place_has_is_impossible():
    choice = BOTH.choose(Task(key="a", instance_types=("ml.g5.xlarge",), spot=True), (), Market(), 0)
    assert (choice.offer, choice.again_s) == (None, None)
    assert set(choice.reasons) == {str(EAST), str(WEST)}


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


def test_a_cluster_that_is_larger_than_all_that_a_place_had_is_tried_alone():
    assert Market(held={EAST: 0}).bars(EAST, 8, 0) is None
    assert Market(held={EAST: 0}, in_use={EAST: 8}).bars(EAST, 8, 0) is not None
