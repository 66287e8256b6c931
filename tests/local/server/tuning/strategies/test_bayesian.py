"""Bayesian search learns from what has ended, and does not try anything twice."""

import statistics

from raysm.local.server.tuning.strategies.bayesian import BayesianSearch
from raysm.local.server.tuning.trial import Trial
from tests.local.server.tuning.strategies.test_strategy import search
from tests.support.tuning import categorical, continuous

PLANE = (continuous("x"), continuous("y"))


def bowl(assignment):
    return (float(assignment["x"]) - 0.3) ** 2 + (float(assignment["y"]) - 0.8) ** 2


def ended(number, assignment, loss):
    return Trial(number=number, assignment=assignment, losses=(loss,), ended=True, loss=loss)


def tried(strategy, count, function=bowl):
    trials = []
    for number in range(count):
        assignment = strategy.propose(trials, number)
        trials.append(ended(number, assignment, function(assignment)))
    return trials


def test_it_comes_nearer_to_the_best_than_chance_does():
    best = {"learned": [], "drawn": []}
    for seed in range(5):
        strategy = BayesianSearch(search(*PLANE, seed=seed))
        best["learned"].append(min(trial.loss for trial in tried(strategy, 20)))
        best["drawn"].append(min(bowl(strategy.draw(number)) for number in range(20)))
    assert statistics.median(best["learned"]) < statistics.median(best["drawn"]) / 5


def test_one_at_a_time_a_seed_repeats_it():
    first, again = (tried(BayesianSearch(search(*PLANE)), 8) for _ in range(2))
    assert [trial.assignment for trial in first] == [trial.assignment for trial in again]


def test_of_two_at_a_time_the_second_looks_elsewhere():
    strategy = BayesianSearch(search(*PLANE))
    trials = tried(strategy, 12)
    one = strategy.propose(trials, 12)
    other = strategy.propose([*trials, Trial(number=12, assignment=one)], 13)
    assert abs(float(one["x"]) - float(other["x"])) + abs(float(one["y"]) - float(other["y"])) > 1e-3


def test_of_choices_none_is_tried_twice_and_all_are_at_last():
    strategy = BayesianSearch(search(categorical("a", "1", "2", "3"), categorical("b", "1", "2", "3")))
    trials = tried(strategy, 9, lambda assignment: float(assignment["a"]))
    assert len({tuple(trial.assignment.values()) for trial in trials}) == 9
    assert strategy.propose(trials, 9) is None


def test_trials_without_a_value_and_parents_outside_of_the_ranges_teach_nothing():
    strategy = BayesianSearch(search(*PLANE))
    useless = [Trial(number=number, assignment={"x": "0.1", "y": f"0.{number}"}, ended=True) for number in range(9)]
    useless += [ended(-1 - number, {"x": "7", "y": f"0.{number}"}, 1.0) for number in range(9)]
    assert strategy.propose(useless, 4) == strategy.draw(4)


def test_equal_values_everywhere_are_no_reason_to_break():
    assert len(tried(BayesianSearch(search(*PLANE)), 9, lambda assignment: 1.0)) == 9
