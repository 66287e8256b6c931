"""Hyperband ends what falls behind at its rungs, and nothing before the first of them."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.strategies.hyperband import Hyperband
from raysm.local.server.tuning.trial import Trial
from tests.local.server.tuning.strategies.test_strategy import search
from tests.support.tuning import continuous


def config(least=1, most=27, **fields):
    return {"StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": least, "MaxResource": most}}, **fields}


def hyperband(**fields):
    return Hyperband(search(continuous("lr"), config=config(**fields)))


def trial(number, *losses, ended=False):
    return Trial(number=number, assignment={"lr": "0.1"}, losses=losses, ended=ended)


def test_at_a_rung_the_best_third_goes_on():
    # Brackets take turns: 0, 3, 6 … have their first rung at the first report.
    others = [trial(3 * number, 1.0 + number) for number in range(6)]
    band = hyperband()
    assert [band.stops(one, others) for one in others] == [False, False, True, True, True, True]


def test_who_comes_first_goes_on_since_nobody_is_better():
    assert not hyperband().stops(trial(0, 9.0), [trial(0, 9.0)])


def test_between_two_rungs_what_was_reported_at_the_last_one_counts():
    good, worse = trial(0, 1.0, 50.0), trial(3, 2.0, 0.1)
    others = [good, worse, trial(6, 3.0)]
    assert not hyperband().stops(good, others)
    assert hyperband().stops(worse, others)


def test_before_the_least_resource_none_is_ended():
    band = hyperband(least=5)
    others = [trial(number, 9.0 - number, 9.0, 9.0, 9.0) for number in range(6)]
    assert not any(band.stops(one, others) for one in others)


def test_another_bracket_begins_to_judge_later_and_by_its_own_trials():
    band = hyperband()
    others = [trial(1, 5.0, 5.0), trial(4, 9.0, 9.0), trial(0, 0.1), trial(3, 0.1)]
    assert not band.stops(others[1], others)
    others = [trial(1, 5.0, 5.0, 5.0), trial(4, 9.0, 9.0, 9.0)]
    assert band.stops(others[1], others)


def test_at_the_greatest_resource_it_is_ended_however_good_it_is():
    assert hyperband(most=4).stops(trial(0, 1, 1, 1, 1), [])


def test_the_greatest_resource_may_stand_among_the_static_hyperparameters():
    inferred = Hyperband(search(continuous("lr"), config={}, static={"epochs": "3"}))
    assert inferred.stops(trial(0, 1, 1, 1), [])
    with pytest.raises(ApiError, match="Hyperband needs MaxResource"):
        Hyperband.check(search(continuous("lr"), config={}, static={"batch": "3"}), 5)


@pytest.mark.parametrize(("least", "most"), [(5, 5), (9, 3), (1, 20_001)])
def test_resources_that_cannot_be_are_refused(least, most):
    with pytest.raises(ApiError, match=f"MinResource is {least} and MaxResource {most}"):
        Hyperband.check(search(continuous("lr"), config=config(least, most)), 5)


def test_early_stopping_beside_its_own_is_refused():
    with pytest.raises(ApiError, match="must be OFF to use the Hyperband strategy"):
        Hyperband.check(search(continuous("lr"), config=config(TrainingJobEarlyStoppingType="Auto")), 5)
