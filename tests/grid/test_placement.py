"""Where a row goes: prices, data, waiting, quotas, refusals; and trying what is not known."""

import random

import pytest

from raysm.grid.estimates import Estimates
from raysm.grid.place import Market, Offer, Outlook, Place, Quota
from raysm.grid.placement import OPTIMISM, WAITING_USD_PER_HOUR, Cheapest, Rate, Worth, refusal
from raysm.grid.task import UNKNOWN_S, Task
from tests.grid.test_experience import ended

EAST, WEST, IRELAND = "us-east-1", "us-west-2", "eu-west-1"
G5, P4 = "ml.g5.xlarge", "ml.p4d.24xlarge"
NOW = 1000.0


def place(region, kind=G5, spot=False):
    return Place(region=region, instance_type=kind, spot=spot)


def offer(region, usd=1.0, kind=G5, count=1, spot=False):
    return Offer(place=place(region, kind, spot), usd_per_hour=usd, count=count, price_version="v1")


def choose(offers, task=None, market=None, **more):
    return Cheapest(offers=offers, **more).choose(task or Task(key="a", expected_s=3600), [], market or Market(), NOW)


def test_the_cheapest_place_takes_the_row_with_the_time_that_it_will_take():
    choice = choose([offer(EAST, 1.5), offer(WEST, 1.2), offer(IRELAND, 1.3)])
    assert choice.offer.place == place(WEST)
    assert choice.offer.expected_s == 3600


def test_of_equal_ones_the_users_favorite_comes_first():
    assert choose([offer(WEST), offer(EAST)]).offer.place.region == WEST


def test_an_unknown_price_is_never_nothing():
    assert choose([offer(EAST, None), offer(WEST, 900.0)]).offer.place.region == WEST
    assert choose([offer(EAST, None)]).offer.place.region == EAST


def test_data_stay_at_home_unless_they_may_move_and_then_their_way_is_paid():
    offers = [offer(EAST, 1.0), offer(IRELAND, 3.0)]
    home = Task(key="a", region=IRELAND, expected_s=3600, input_bytes=10**12)
    choice = choose(offers, home)
    assert choice.offer.place.region == IRELAND
    assert choice.reasons[str(place(EAST))] == "its data lie in eu-west-1, and move_data is not allowed"
    # A TB costs 20 dollars, of which an hour at a third of the price saves two.
    assert choose(offers, home, move_data=True).offer.place.region == IRELAND
    small = Task(key="a", region=IRELAND, expected_s=3600, input_bytes=10**9)
    assert choose(offers, small, move_data=True).offer.place.region == EAST
    unknown = Task(key="a", region=IRELAND, expected_s=3600)
    assert choose(offers, unknown, move_data=True).offer.place.region == IRELAND


def test_of_a_region_all_types_that_take_the_row_go_into_one_choice_where_that_is_asked_for():
    offers = [offer(EAST, 1.0), offer(EAST, 9.0, P4), offer(WEST, 1.0, P4), offer(EAST, 0.9, P4, spot=True)]
    mine = Task(key="a", expected_s=3600, spot=False)
    assert choose(offers, mine).offer.alternatives == ()
    chosen = choose(offers, mine, any_type=True).offer
    assert [each.place for each in chosen.alternatives] == [place(EAST, P4)]
    # The service chooses, so the dearest of them counts.
    assert (chosen.usd_per_hour, chosen.most_usd_per_hour) == (1.0, 9.0)
    assert chosen.choice == f'{{"{G5}": 1.0, "{P4}": 9.0}}'
    full = Market(quotas={place(EAST, P4): Quota(limit=0)})
    assert choose(offers, mine, full, any_type=True).offer.choice == ""


def test_whatever_the_service_may_take_in_a_places_stead_is_its_company():
    offers = [offer(EAST, 1.0), offer(EAST, 9.0, P4), offer(WEST, 1.0, P4), offer(EAST, 0.9, P4, spot=True)]
    mine = Task(key="a", expected_s=3600)
    alone = Cheapest(offers=offers)
    assert alone.companions(mine, offers[0]) == (offers[0],)
    together = Cheapest(offers=offers, any_type=True)
    assert together.companions(mine, offers[0]) == (offers[0], offers[1])
    assert together.companions(mine, offers[3]) == (offers[3],)


def test_a_place_that_refused_is_left_for_the_next_type_and_region():
    offers = [offer(EAST, 1.0), offer(WEST, 1.1), offer(EAST, 9.0, P4)]
    blocked = Market(blocked={place(EAST): NOW + 3600})
    assert choose(offers, market=blocked).offer.place == place(WEST)
    blocked = Market(blocked={place(EAST): NOW + 36000, place(WEST): NOW + 36000})
    assert choose(offers, market=blocked).offer.place == place(EAST, P4)


def test_a_short_wait_for_a_far_cheaper_place_is_worth_it():
    offers = [offer(EAST, 1.0), offer(WEST, 30.0)]
    choice = choose(offers, market=Market(blocked={place(EAST): NOW + 60}))
    assert choice.offer is None
    assert choice.again_s == NOW + 60


def test_a_quota_that_can_never_take_the_row_is_a_reason_and_no_wait():
    market = Market(quotas={place(EAST): Quota(limit=2)})
    choice = choose([offer(EAST, count=3)], market=market)
    assert (choice.offer, choice.again_s) == (None, None)
    assert choice.reasons == {str(place(EAST)): "the quota is 2 of ml.g5.xlarge, and the job takes 3"}


def test_rows_spill_over_once_the_quota_of_the_best_place_is_in_use():
    market = Market(quotas={place(EAST): Quota(limit=1)}, in_use={place(EAST): 1})
    assert choose([offer(EAST, 1.0), offer(WEST, 1.1)], market=market).offer.place.region == WEST


def test_what_a_region_lacks_is_a_reason():
    choice = choose([offer(EAST), offer(WEST, 2.0)], lacks=lambda task, region: "no image" if region == EAST else None)
    assert choice.offer.place.region == WEST
    assert choice.reasons == {str(place(EAST)): "no image"}


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (Task(key="a", region=WEST), "its data lie in us-west-2"),
        (Task(key="a", instance_types=(P4,)), "the row asks for ml.p4d.24xlarge"),
        (Task(key="a", spot=True), "the row says spot=True"),
        (Task(key="a", region=EAST, instance_types=(G5,), spot=False), None),
    ],
    ids=["region", "type", "spot", "all right"],
)
def test_a_rows_own_columns_are_reasons(task, why):
    text = refusal(task, offer(EAST), move_data=False)
    assert text is None if why is None else text.startswith(why)


def test_a_type_that_is_cheaper_for_the_work_is_found_by_trying():
    """P4 costs 20 times as much and is 40 times as fast: nobody knows, until it was tried."""
    true_s = {G5: 4000.0, P4: 100.0}
    placement = Cheapest(offers=[offer(EAST, 1.0), offer(EAST, 20.0, P4)])
    chosen = []
    for row in range(12):
        task = Task(key=str(row))
        kind = placement.choose(task, [], Market(), NOW).offer.place.instance_type
        chosen.append(kind)
        placement.learn(task, ended(kind, training_s=true_s[kind]))
    assert chosen[0] == G5
    assert chosen.count(P4) >= 9
    assert chosen[-3:] == [P4] * 3


def test_a_dear_type_that_is_not_faster_is_left_after_it_was_tried():
    placement = Cheapest(offers=[offer(EAST, 1.0), offer(EAST, 20.0, P4)])
    chosen = []
    for row in range(12):
        task = Task(key=str(row))
        kind = placement.choose(task, [], Market(), NOW).offer.place.instance_type
        chosen.append(kind)
        placement.learn(task, ended(kind, training_s=1000.0))
    assert chosen.count(P4) == 1
    assert 0 < OPTIMISM < 1


def test_spot_counts_by_what_it_was_billed_for():
    offers = [offer(EAST, 1.0), offer(EAST, 1.0, spot=True)]
    assert choose(offers).offer.place.spot
    experience = Estimates()
    for _ in range(3):
        experience.learn(Task(key="a"), ended(spot=True, training_s=3600.0, billable_s=3600.0, started_s=7200.0))
    assert not choose(offers, estimates=experience).offer.place.spot


def test_worth_is_dollars_of_instances_data_and_waiting():
    worth = Cheapest(offers=[]).worth(
        Task(key="a", region=EAST, input_bytes=10**9, expected_s=1800), offer(WEST, 2.0, count=3)
    )
    assert worth.usd == pytest.approx(3.0)
    assert worth.transfer_usd == pytest.approx(0.02)
    assert worth.score(0.0) == (0, pytest.approx(3.02))
    assert Worth(usd=None, transfer_usd=None, wait_s=0, seconds=None).score(1.0) == (2, 0.0)


def test_a_rate_is_a_worth_once_the_time_is_known_and_an_hour_where_it_is_not():
    rate = Rate(usd_per_s=0.001, transfer_usd=0.5, wait_s=60)
    assert rate.worth(100, delay_s=40) == Worth(usd=0.1, transfer_usd=0.5, wait_s=100, seconds=100)
    assert rate.worth(None).usd == pytest.approx(0.001 * UNKNOWN_S)
    assert Rate(usd_per_s=None, transfer_usd=0.0, wait_s=0).worth(9).usd is None
    assert WAITING_USD_PER_HOUR > 0


def test_whatever_happens_a_choice_is_a_place_that_takes_the_row_or_a_moment_or_reasons():
    chance = random.Random(3)
    for _ in range(300):
        offers = [offer(region, chance.choice([None, 1.0, 2.0]), kind) for region in (EAST, WEST) for kind in (G5, P4)]
        some = [each.place for each in offers if chance.random() < 0.4]
        market = Market(
            blocked={each: NOW + chance.uniform(-50, 500) for each in some},
            quotas={each.place: Quota(limit=chance.randint(0, 3)) for each in offers if chance.random() < 0.5},
            in_use={each.place: 1 for each in offers if chance.random() < 0.5},
        )
        task = Task(key="a", count=chance.randint(1, 3), region=chance.choice([None, EAST]))
        choice = choose(offers, task, market)
        if choice.offer is not None:
            assert market.bars(choice.offer.place, task.count, NOW) is None
            assert task.region in (None, choice.offer.place.region)
        elif choice.again_s is not None:
            assert choice.again_s > NOW
        else:
            assert len(choice.reasons) == len(offers)


@pytest.mark.parametrize(("usd", "region"), [(1.0, None), (0.9, EAST)])
def test_the_last_rows_wait_for_a_faster_place_that_costs_no_more(usd, region):
    outlook = Outlook(
        waiting=1,
        takes_s={place(EAST): 3.0, place(WEST): 1.0},
        free_s={place(WEST): (NOW + 60,)},
    )
    market = Market(outlook=outlook, in_use={place(WEST): 1}, blocked={place(WEST): NOW + 60})
    choice = choose([offer(EAST, usd), offer(WEST, 1.0)], market=market)
    assert (choice.offer and choice.offer.place.region) == region


def test_a_faster_place_of_the_same_price_takes_the_row_itself_where_it_is_free():
    outlook = Outlook(waiting=3, takes_s={place(EAST): 2.0, place(WEST): 1.0})
    market = Market(outlook=outlook, held={place(EAST): 4, place(WEST): 4})
    assert choose([offer(EAST), offer(WEST)], market=market).offer.place == place(WEST)


def test_a_place_that_has_refused_for_long_is_believed_to_go_on_for_as_long():
    # An hour of waiting is worth a dollar: three for the pause and what it has lasted so far are more than two saved.
    offers = [offer(EAST, 1.0), offer(WEST, 3.0)]
    for hours, region in ((1, None), (3, WEST)):
        market = Market(blocked={place(EAST): NOW + 60}, refusing={place(EAST): NOW - hours * 3600})
        choice = choose(offers, market=market)
        assert (choice.offer and choice.offer.place.region) == region
        assert (choice.stuck == {}) is True
    alone = choose(offers[:1], market=market)
    assert alone.stuck == {place(EAST): NOW - 3 * 3600}
