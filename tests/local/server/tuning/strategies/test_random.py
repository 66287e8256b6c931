"""Random search knows nothing of what came before."""

from raysm.local.server.tuning.strategies.random import RandomSearch
from raysm.local.server.tuning.trial import Trial
from tests.local.server.tuning.strategies.test_strategy import search
from tests.support.tuning import continuous


def test_what_came_of_the_trials_before_changes_nothing():
    strategy = RandomSearch(search(continuous("lr")))
    ended = [Trial(number=0, assignment={"lr": "0.5"}, losses=(1.0,), ended=True, loss=1.0)]
    assert strategy.propose(ended, 3) == strategy.propose([], 3)


def test_no_trial_is_ended_early():
    strategy = RandomSearch(search(continuous("lr")))
    running = Trial(number=1, assignment={"lr": "0.5"}, losses=(9.0,) * 50)
    assert not strategy.stops(running, [running])
