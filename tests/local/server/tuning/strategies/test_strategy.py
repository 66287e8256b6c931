"""What every strategy has: a sequence that a seed repeats, and a refusal of too few combinations."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.ranges import read_ranges
from raysm.local.server.tuning.strategies import STRATEGIES, strategy_of
from raysm.local.server.tuning.strategies.strategy import Search, Strategy
from tests.support.tuning import categorical, continuous


def search(*ranges, seed=1, **fields):
    whole = {"CategoricalParameterRanges": [item for item in ranges if "Values" in item]}
    whole["ContinuousParameterRanges"] = [item for item in ranges if "Values" not in item]
    return Search(ranges=read_ranges(whole), seed=seed, **fields)


def test_the_same_seed_draws_the_same_and_another_one_something_else():
    first, again = Strategy(search(continuous("lr"))), Strategy(search(continuous("lr")))
    other = Strategy(search(continuous("lr"), seed=2))
    assert [first.draw(number) for number in range(10)] == [again.draw(number) for number in range(10)]
    assert first.draw(0) != other.draw(0)


def test_what_is_drawn_does_not_depend_on_what_was_asked_for_before():
    assert (
        Strategy(search(continuous("lr"))).draw(7) == [Strategy(search(continuous("lr"))).draw(n) for n in range(8)][7]
    )


def test_none_is_drawn_twice_and_the_sequence_ends_with_the_combinations():
    few = Strategy(search(categorical("a", "1", "2", "3"), categorical("b", "x", "y")))
    drawn = [few.draw(number) for number in range(7)]
    assert len({tuple(one.values()) for one in drawn[:6]}) == 6
    assert drawn[6] is None


def test_fewer_combinations_than_jobs_are_refused_in_the_words_of_aws():
    with pytest.raises(ApiError) as refused:
        Strategy.check(search(categorical("a", "1", "2", "3")), 10)
    assert refused.value.message == (
        "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter combinations "
        "for the provided ranges [3.0] must be equal or greater than the value of MaxNumberOfJobs, [10]. Provide "
        "additional ranges."
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_name_of_the_service_has_a_strategy(name):
    assert issubclass(strategy_of({"Strategy": name}), Strategy)
