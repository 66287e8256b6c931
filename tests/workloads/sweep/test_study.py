"""The memory of a sweep: what is tried next, which trials end early, and what survives an interruption."""

import math
from dataclasses import replace

import pytest

import raysm
from raysm.contract.events import Trial
from raysm.request.sweep import Earlier, ScriptSweep
from raysm.workloads.sweep.study import Entry, Population, Study, drawing_by

SPACE = {
    "lr": raysm.loguniform(1e-4, 1e-1),
    "q": raysm.qloguniform(1, 64, 3),
    "n": raysm.randint(1, 4),
    "kind": raysm.choice(["a", "b", None]),
}
LINE = {"x": raysm.uniform(0, 1)}
NAN = math.nan


def workload(**fields):
    return ScriptSweep(**{"script": "train.py", "space": SPACE, "metric": "loss", "mode": "min"} | fields)


@pytest.fixture
def study(tmp_path):
    """Open studies, each in a folder of its own unless it is named."""
    folders = []

    def opened(draw=None, folder=None, **fields):
        folders.append(folder or tmp_path / str(len(folders)))
        return Study(workload(**fields), draw, folders[-1])

    return opened


def ended(entry, value, status="done"):
    return replace(entry, trial=replace(entry.trial, status=status, value=value, reports=2))


def drawn(study, count=12):
    params = []
    for _ in range(count):
        entry = study.next()
        study.finish(ended(entry, entry.trial.params["lr"]))
        params.append(entry.trial.params)
    return params


def trials(study):
    return study._study.trials


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_a_seed_repeats_the_search(study, search):
    first = drawn(study(search=search, seed=7))
    assert first == drawn(study(search=search, seed=7))
    assert first != drawn(study(search=search, seed=8))
    assert all(1e-4 <= params["lr"] <= 1e-1 and (params["q"] - 1) % 3 == 0 for params in first)


def test_a_grid_tries_every_combination_once_also_over_an_interruption(study, tmp_path):
    fields = {"space": {"n": raysm.randint(1, 2), "kind": raysm.choice(["a", "b"])}, "search": "grid"}
    opened = study(folder=tmp_path / "kept", **fields)
    first, second = opened.next(), opened.next()
    opened.finish(ended(first, 1.0))
    opened.save(second)
    again = study(folder=tmp_path / "kept", **fields)
    assert [entry.trial.params for entry in again.interrupted] == [{"n": 1, "kind": "b"}]
    rest = [again.next(), again.next()]
    assert [(entry.trial.number, dict(entry.trial.params)) for entry in rest] == [
        (2, {"n": 2, "kind": "a"}),
        (3, {"n": 2, "kind": "b"}),
    ]
    assert again.next() is None


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_an_interrupted_sweep_continues_with_its_trials_and_draws_new_ones(study, tmp_path, search):
    fields = {"folder": tmp_path / "kept", "search": search, "seed": 7}
    before = study(**fields)
    done, with_files, without, unwritten = (before.next() for _ in range(4))
    before.finish(ended(done, 1.0))
    folder = before.files / "1" / "a"
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    before.save(replace(with_files, checkpoint="1/a", reports=3))
    before.save(without)
    # The last one was drawn and not written down, and the last line of the journal is incomplete.
    (journal,) = (tmp_path / "kept").rglob("journal.log")
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')
    again = study(**fields)
    assert {number: entry.trial.value for number, entry in again.entries.items()} == {0: 1.0}
    assert [(entry.trial.number, entry.checkpoint, entry.reports) for entry in again.interrupted] == [
        (1, "1/a", 3),
        (2, None, 0),
        (3, None, 0),
    ]
    begun = [done, with_files, without, unwritten]
    assert [entry.trial.params for entry in again.interrupted] == [entry.trial.params for entry in begun[1:]]
    new = [again.next() for _ in range(3)]
    assert [entry.trial.number for entry in new] == [4, 5, 6]
    assert len({entry.trial.params["lr"] for entry in (*begun, *new)}) == 7


def test_an_incomplete_checkpoint_is_not_used(study, tmp_path):
    before = study(folder=tmp_path / "kept")
    entry = before.next()
    (before.files / "0" / "a").mkdir(parents=True)
    (before.files / "0" / "a" / "model").write_text("weights")
    before.save(replace(entry, checkpoint="0/a", reports=3))
    (before.files / "0" / "a" / "model").write_text("weig")
    (again,) = study(folder=tmp_path / "kept").interrupted
    assert (again.trial.params, again.checkpoint, again.reports) == (entry.trial.params, None, 0)


def test_earlier_trials_are_learned_from_also_if_a_function_draws(study):
    def space(trial):
        return {"x": trial.suggest_float("x", 0, 1), "epochs": 3}

    earlier = tuple(Earlier(params={"x": x}, value=x) for x in (0.2, 0.8))
    for draw in (None, drawing_by(space, "space")):
        opened = study(draw, space=LINE, warm_start=earlier)
        assert [(trial.params, trial.value) for trial in trials(opened)] == [({"x": 0.2}, 0.2), ({"x": 0.8}, 0.8)]
        assert opened.next().trial.number == 0


def stops(study, *values):
    """Begin a trial; return after how many of these reports it was stopped, None if never."""
    entry = study.next()
    for count, value in enumerate(values, 1):
        if study.should_stop(entry.trial.number, value, count):
            return count
    study.finish(ended(entry, values[-1]))
    return None


@pytest.mark.parametrize(
    ("stop", "mode", "first", "second", "expected"),
    [
        ("asha", "min", [1.0] * 4, [2.0], 1),
        ("asha", "min", [1.0] * 4, [0.5, 0.5, 0.5, 2.0], 4),
        ("asha", "max", [1.0] * 4, [2.0] * 4, None),
        ("asha", "min", [1.0] * 4, [0.5, NAN, NAN, NAN], 4),
        (raysm.Asha(grace=2, factor=3), "min", [1.0] * 6, [2.0, 2.0], 2),
        (raysm.Median(least_trials=1, grace=3), "min", [1.0] * 4, [2.0, 2.0, 2.0], 3),
        (raysm.Median(least_trials=1), "min", [1.0] * 4, [0.5, NAN], 2),
        (None, "min", [1.0] * 4, [2.0, NAN, 2.0, 2.0], None),
    ],
)
def test_rules_end_the_worse_of_two_trials(study, stop, mode, first, second, expected):
    opened = study(stop=stop, mode=mode)
    assert stops(opened, *first) is None
    assert stops(opened, *second) == expected


def test_a_population_copies_the_best_to_the_worst_within_the_ranges():
    sweep = workload(space=LINE, search="random", stop=raysm.Pbt(every=2), trials=4, seed=1)
    population = Population(sweep.stop, sweep)
    assert [population.compares(reports) for reports in (1, 2, 3, 4)] == [False, True, False, True]

    def entry(number, value):
        trial = Trial(number=number, status="running", params={"x": 0.5}, value=value)
        return Entry(trial=trial, checkpoint=f"{number}/a", reports=2)

    assert population.compare(entry(0, 1.0)) is None
    assert population.compare(entry(1, 0.5)) is None
    assert population.compare(entry(2, 0.7)) is None
    copied = population.compare(entry(3, None))
    assert (copied.trial.number, copied.checkpoint, copied.reports, copied.trial.value) == (3, "1/a", 2, 0.5)
    assert copied.trial.params["x"] != 0.5
    assert 0 <= copied.trial.params["x"] <= 1
    assert population.checkpoints == {f"{number}/a" for number in range(4)}
    population.leave(1)
    assert population.compare(entry(3, None)).checkpoint == "2/a"
