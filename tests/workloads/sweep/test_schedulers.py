"""The rules as Ray Tune's schedulers."""

import math
from types import SimpleNamespace

import pytest
from ray.tune import CheckpointConfig
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, PopulationBasedTraining

import raysm
from raysm.request.sweep import ScriptSweep
from raysm.workloads.sweep.schedulers import NOT_FINITE, REPORTS, VALUE, scheduler_of

SPACE = {"lr": raysm.loguniform(1e-4, 1e-1), "n": raysm.randint(1, 4)}


def workload(stop, **fields):
    return ScriptSweep(**{"script": "train.py", "space": SPACE, "metric": "loss", "mode": "min", "stop": stop} | fields)


class TuneTrial:
    """A trial of Tune's, as far as schedulers look at it; ``reports`` are of before an interruption."""

    status, experiment_tag = "RUNNING", ""
    run_metadata = SimpleNamespace(checkpoint_manager=SimpleNamespace(checkpoint_config=CheckpointConfig()))

    def __init__(self, name, reports=0):
        self.trial_id, self.config = name, {"reports": reports}

    def is_finished(self):
        return False


class Judge:
    """A scheduler, and Ray Tune's calls of it."""

    def __init__(self, stop, waiting=(), **fields):
        self.scheduler, self.waiting, self.counts = scheduler_of(workload(stop, **fields)), list(waiting), {}

    def get_live_trials(self):
        return self.waiting

    def get_trials(self):
        return self.waiting

    def begin(self, name, reports=0):
        trial = TuneTrial(name, reports)
        self.scheduler.on_trial_add(self, trial)
        return trial

    def report(self, trial, *values):
        """Report ``values``; return what is decided at each: None is a report without the metric."""
        return [self._decision(trial, value) for value in values]

    def _decision(self, trial, value):
        count = self.counts[trial] = self.counts.get(trial, 0) + 1
        said = {} if value is None else {VALUE: value} if math.isfinite(value) else {NOT_FINITE: True}
        return self.scheduler.on_trial_result(self, trial, {REPORTS: count, **said})

    def end(self, trial):
        # As Tune does: the last result says how it ended, and counts as a report there.
        self.scheduler.on_trial_complete(self, trial, {REPORTS: self.counts[trial] + 1})


@pytest.mark.parametrize(
    ("stop", "kind"),
    [(None, FIFOScheduler), ("asha", ASHAScheduler), ("median", MedianStoppingRule), ("pbt", PopulationBasedTraining)],
)
def test_a_rule_names_its_scheduler(stop, kind):
    assert isinstance(scheduler_of(workload(stop)), kind)


def test_a_population_varies_parameters_within_their_ranges_and_nothing_else():
    vary = scheduler_of(workload("pbt", seed=1))._custom_explore_fn
    config = {"params": {"lr": 0.1, "n": 4}, "restored": None, "files": "name"}
    for _ in range(20):
        config = vary(config)
        assert 1e-4 <= config["params"]["lr"] <= 1e-1
        assert config["params"]["n"] in (1, 2, 3, 4)
    assert (config["restored"], config["files"]) == (None, "name")


GO, STOP = "CONTINUE", "STOP"
NAN = float("nan")


def test_a_trial_that_goes_on_is_compared_at_the_rung_it_has_come_to():
    judge = Judge("asha")
    for name in "abc":
        judge.report(judge.begin(name), 9.0, 9.0, 9.0, 5.0)
    # At its fourth report it is the worst of all, at its first and second it would have been the best.
    going_on = judge.begin("d", reports=2)
    assert judge.report(going_on, 7.0, 7.0) == [GO, STOP]


def test_rungs_that_a_trial_had_passed_are_over_for_it_and_for_those_it_is_compared_with():
    judge = Judge("asha")
    going_on = judge.begin("a", reports=6)
    assert judge.report(going_on, 0.1, 0.1, 0.1) == [GO, GO, GO]
    judge.end(going_on)
    # Nobody has come to these rungs before: what the other one reported was of later.
    assert judge.report(judge.begin("b"), 9.0, 8.0, 7.0, 6.0) == [GO, GO, GO, GO]


def test_a_rung_is_at_the_next_report_that_brings_the_metric():
    judge = Judge("asha")
    judge.report(judge.begin("a"), None, 1.0)
    assert judge.report(judge.begin("b"), None, 2.0) == [GO, STOP]


def test_beyond_the_most_reports_every_trial_is_ended():
    judge = Judge(raysm.Asha(most_reports=3))
    assert judge.report(judge.begin("a"), 1.0, 1.0, 1.0) == [GO, GO, STOP]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_trial_that_diverges_is_ended_at_its_next_rung_and_the_others_are_compared_as_before(mode):
    judge = Judge("asha", mode=mode)
    diverging, infinite = judge.begin("a"), judge.begin("b")
    assert judge.report(diverging, 1.0, NAN, NAN, NAN) == [GO, GO, GO, STOP]
    judge.end(diverging)
    assert judge.report(infinite, math.inf) == [STOP]
    worse, better = (2.0, 0.5) if mode == "min" else (0.5, 2.0)
    assert judge.report(judge.begin("c"), worse) == [STOP]
    assert judge.report(judge.begin("d"), better) == [GO]


def test_a_trial_that_recovers_before_its_next_rung_goes_on():
    judge = Judge("asha")
    assert judge.report(judge.begin("a"), 1.0, NAN, 1.0, 1.0) == [GO, GO, GO, GO]


def test_below_the_median_a_trial_is_ended_by_its_reports_of_before_too():
    judge = Judge(raysm.Median(least_trials=1, grace=3))
    judge.report(judge.begin("a"), 1.0, 1.0, 1.0, 1.0, 1.0)
    assert judge.report(judge.begin("b", reports=3), 2.0) == [STOP]
    # Two reports it may make in any case.
    assert judge.report(judge.begin("c"), 2.0, NAN) == [GO, GO]


def test_a_trial_that_diverges_is_ended_by_the_median_rule_and_is_no_part_of_it():
    judge = Judge(raysm.Median(least_trials=1))
    diverging = judge.begin("a")
    assert judge.report(diverging, 1.0, NAN) == [GO, STOP]
    judge.end(diverging)
    assert judge.report(judge.begin("b"), 0.5, 0.5, 0.5) == [GO, GO, GO]


def test_the_median_rule_goes_on_where_trials_report_unlike_often():
    judge = Judge(raysm.Median(least_trials=1))
    short = judge.begin("a")
    judge.report(short, 1.0, 1.0)
    judge.end(short)
    assert judge.report(judge.begin("b"), 0.5, 0.5, 0.5, 0.5) == [GO, GO, GO, GO]


def test_the_median_rule_pauses_no_trial_whose_function_would_begin_anew():
    pending = TuneTrial("b")
    pending.status = "PENDING"
    judge = Judge("median", waiting=[pending])
    assert judge.report(judge.begin("a"), 1.0, 1.0) == [GO, GO]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_in_a_population_a_trial_that_diverges_is_the_worst(mode):
    judge = Judge("pbt", mode=mode)
    trial = judge.begin("a")
    judge.report(trial, 1.0, NAN)
    assert judge.scheduler.last_scores([trial]) == [-math.inf]
