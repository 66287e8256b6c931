"""Grid search tries every combination once."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.strategies.grid import GridSearch
from tests.local.server.tuning.strategies.test_strategy import search
from tests.support.tuning import categorical, continuous

GRID = (categorical("depth", "2", "4", "8"), categorical("kind", "a", "b"))


def proposed(seed):
    strategy = GridSearch(search(*GRID, seed=seed))
    return [strategy.propose([], number) for number in range(7)]


def test_every_combination_comes_once_and_then_none():
    *combinations, last = proposed(1)
    assert sorted(tuple(one.values()) for one in combinations) == [
        (depth, kind) for depth in ("2", "4", "8") for kind in ("a", "b")
    ]
    assert last is None


def test_the_seed_gives_the_order():
    assert proposed(1) == proposed(1)
    assert any(proposed(1) != proposed(seed) for seed in range(2, 6))


def test_a_range_of_numbers_is_refused():
    with pytest.raises(ApiError, match="supports categorical hyperparameters only; 'lr' is of another kind"):
        GridSearch.check(search(*GRID, continuous("lr")), None)


def test_another_number_of_jobs_than_of_combinations_is_refused():
    GridSearch.check(search(*GRID), 6)
    with pytest.raises(ApiError, match="MaxNumberOfTrainingJobs is 5, and the grid has 6 combinations"):
        GridSearch.check(search(*GRID), 5)
