"""What the next trial tries."""

import pytest

import raysm
from raysm.contract.events import Trial
from raysm.errors import InvalidRequest
from raysm.request.sweep import Earlier, ScriptSweep
from raysm.workloads.sweep.search import Search, Searching, Waiting, drawing_by

SPACE = {
    "lr": raysm.loguniform(1e-4, 1e-1),
    "q": raysm.qloguniform(1, 64, 3),
    "n": raysm.randint(1, 4),
    "kind": raysm.choice(["a", "b"]),
}


def workload(**fields):
    return ScriptSweep(**{"script": "train.py", "space": SPACE, "metric": "loss", "mode": "min"} | fields)


def ended(config, value, status="done"):
    return Trial(number=config["number"], status=status, params=config["params"], value=value, reports=2)


def drawn(search, count=12):
    configs = []
    for _ in range(count):
        config = search.next()
        search.tell(ended(config, config["params"]["lr"]))
        configs.append(config["params"])
    return configs


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_with_a_seed_the_same_is_tried_again(search):
    asked = workload(search=search, seed=7)
    first = drawn(Search.begin(asked, None))
    assert first == drawn(Search.begin(asked, None))
    assert first != drawn(Search.begin(workload(search=search, seed=8), None))
    assert all(1e-4 <= params["lr"] <= 1e-1 and (params["q"] - 1) % 3 == 0 for params in first)


def test_optuna_learns_what_is_good():
    search = Search.begin(workload(space={"x": raysm.uniform(0, 1)}, seed=1), None)
    values = []
    for _ in range(40):
        config = search.next()
        value = (config["params"]["x"] - 0.3) ** 2
        search.tell(ended(config, value))
        values.append(value)
    assert sum(values[30:]) < sum(values[:10])


def test_a_grid_is_every_combination_once_and_of_one_that_goes_on_the_rest():
    asked = workload(space={"n": raysm.randint(1, 2), "kind": SPACE["kind"]}, search="grid")
    search = Search.begin(asked, None)
    first = search.next()
    rest = [search.next()["params"] for _ in range(3)]
    every = [(params["n"], params["kind"]) for params in [first["params"], *rest]]
    assert every == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    search = Search.begin(asked, None, [ended(first, 1.0)])
    assert [search.next()["params"] for _ in range(3)] == rest


def test_an_interrupted_trial_comes_first_with_its_number_parameters_and_checkpoint():
    params = {"lr": 0.01, "q": 4.0, "n": 2, "kind": "b"}
    done = Trial(number=0, status="done", params=params | {"n": 1}, value=1.0)
    interrupted = [Waiting(params=params, number=4, restored="/run/checkpoint")]
    search = Search.begin(workload(), None, [done], interrupted)
    assert search.next() == {"number": 4, "params": params, "restored": "/run/checkpoint", "reports": 0}
    assert search.next()["number"] == 5


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_a_sweep_that_goes_on_draws_nothing_that_an_interrupted_trial_tries_already(search):
    asked = workload(search=search, seed=7)
    before = Search.begin(asked, None)
    # None of them had ended when the job was interrupted.
    begun = [before.next() for _ in range(3)]
    interrupted = [Waiting(params=config["params"], number=config["number"]) for config in begun]
    again = Search.begin(asked, None, [], interrupted)
    tried = [again.next()["params"] for _ in range(6)]
    assert tried[:3] == [config["params"] for config in begun]
    assert len({params["lr"] for params in tried}) == 6


def test_what_a_function_made_of_its_draws_is_what_an_interrupted_trial_goes_on_with():
    def space(trial):
        return {"lr": 10 ** trial.suggest_float("exponent", -4, -1), "sides": (trial.suggest_int("side", 1, 9), 2)}

    asked = workload(space={"lr": raysm.loguniform(1e-4, 1e-1)}, seed=7)
    before = Search.begin(asked, drawing_by(space, "space"))
    first, second = before.next(), before.next()
    # As the journal has it: JSON knows no pairs.
    params = {"lr": first["params"]["lr"], "sides": list(first["params"]["sides"])}
    done = [Trial(number=1, status="done", params=second["params"], value=3.0)]
    again = Search.begin(asked, drawing_by(space, "space"), done, [Waiting(params=params, number=0, restored="/run/a")])
    assert again.next() == {"number": 0, "params": params, "restored": "/run/a", "reports": 0}
    again.tell(Trial(number=0, status="done", params=params, value=2.0))
    # Values of trials that it did not draw itself would be remembered as those of others.
    assert not [trial for trial in again.study.trials if trial.value is not None]


def test_how_trials_ended_is_what_the_study_knows():
    search = Search.begin(workload(), None)
    for value, status in ((1.0, "done"), (2.0, "stopped"), (None, "failed"), (None, "stopped")):
        search.tell(ended(search.next(), value, status))
    states = [trial.state.name for trial in search.study.trials]
    assert states == ["COMPLETE", "PRUNED", "FAIL", "FAIL"]
    assert search.study.best_value == 1.0


def test_earlier_trials_are_known_before_the_first_also_where_a_function_draws():
    def space(trial):
        trial.suggest_float("x", 0, 1)

    earlier = tuple(Earlier(params={"x": x}, value=x) for x in (0.2, 0.8))
    for draw in (None, drawing_by(space, "space")):
        search = Search.begin(workload(space={"x": raysm.uniform(0, 1)}, warm_start=earlier), draw)
        assert search.study.best_params == {"x": 0.2}
        assert search.next()["number"] == 0


def test_earlier_trials_are_learned_from_where_a_function_adds_to_what_it_draws():
    def space(trial):
        return {"x": trial.suggest_float("x", 0, 1), "epochs": 3}

    earlier = (Earlier(params={"x": 0.2}, value=1.0),)
    asked = workload(space={"x": raysm.uniform(0, 1)}, warm_start=earlier)
    assert Search.begin(asked, drawing_by(space, "space")).study.best_params == {"x": 0.2}


def test_a_space_function_returns_parameters_or_nothing():
    search = Search.begin(workload(), drawing_by(lambda trial: [1], "space"))
    with pytest.raises(
        InvalidRequest, match=r"the space function space must return parameters by name, or None, got \[1"
    ):
        search.next()


def test_tunes_trials_have_our_numbers():
    searching = Searching(Search.begin(workload(), None))
    first, second = searching.suggest("abc"), searching.suggest("def")
    assert searching.numbers == {"abc": 0, "def": 1}
    assert searching.params == {0: first["params"], 1: second["params"]}
