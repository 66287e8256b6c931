"""What was spent is what is billed, once; what is not known is counted as unknown."""

import pytest

from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.ledger import money, settle, settle_stray


def attempt(**changes):
    values = {
        "task": "t", "number": 1, "name": "a1", "region": "r", "instance_type": "ml", "count": 2, "sent_s": 1.0,
        "usd_per_hour": 36.0, "ending": "OK",
    }  # fmt: skip
    return Attempt(**values | changes)


def test_what_is_billed_of_all_instances_is_spent(store):
    settle(store, attempt(billable_s=100.0))
    assert money(store, 0).spent_usd == pytest.approx(2.0)
    assert money(store, 0).wasted_usd == 0


def test_what_brought_nothing_is_wasted_too(store):
    settle(store, attempt(billable_s=100.0, ending="USER"))
    settle_stray(store, attempt(billable_s=50.0))
    assert money(store, 0).wasted_usd == money(store, 0).spent_usd == pytest.approx(3.0)


def test_spot_saves_what_was_trained_and_not_billed(store):
    settle(store, attempt(spot=True, billable_s=40.0, training_s=100.0))
    assert money(store, 0).saved_usd == pytest.approx(1.2)


@pytest.mark.parametrize("unknown", [{"usd_per_hour": None, "billable_s": 5.0}, {"billable_s": None}])
def test_what_is_not_known_is_counted_as_unknown(store, unknown):
    settle(store, attempt(**unknown))
    assert (money(store, 0).spent_usd, money(store, 0).unpriced) == (0, 1)


def test_what_the_service_never_took_costs_nothing(store):
    settle(store, attempt(sent_s=None))
    assert money(store, 0).unpriced == 0


def test_regions_are_counted_by_themselves(store):
    settle(store, attempt(billable_s=100.0))
    settle(store, attempt(billable_s=50.0, region="other"))
    assert money(store, 0, "other").spent_usd == pytest.approx(1.0)
    assert money(store, 0).spent_usd == pytest.approx(3.0)


def test_open_attempts_are_at_stake_with_their_whole_limit(store):
    store.insert(attempt(max_runtime_s=3_600))
    assert money(store, 0).at_stake_usd == pytest.approx(72.0)
    assert money(store, 0).worst_usd == pytest.approx(72.0)


def test_a_refused_one_that_may_still_land_is_at_stake_until_it_cannot(store):
    store.insert(attempt(state=AttemptState.ENDED, max_runtime_s=3_600, watch_s=900.0))
    assert money(store, 899).at_stake_usd == pytest.approx(72.0)
    assert money(store, 901).at_stake_usd == 0


def test_work_that_an_interruption_took_away_is_counted_beside_and_no_waste(store):
    settle(store, attempt(billable_s=100.0, training_s=400.0, interruptions=1, interrupted_s=100.0))
    counted = money(store, 0)
    assert (counted.spent_usd, counted.wasted_usd, counted.again_usd) == (pytest.approx(2.0), 0, pytest.approx(0.5))
    # What brought nothing at all is waste as a whole, once.
    settle(store, attempt(billable_s=100.0, training_s=400.0, interrupted_s=100.0, ending="USER"))
    assert (money(store, 0).wasted_usd, money(store, 0).again_usd) == (pytest.approx(2.0), pytest.approx(0.5))
