"""Ray Tune's schedulers of the rules by which trials are ended early, each made of its rule's numbers.

What flows in is the workload whose ``stop`` names one of these functions, what flows out is the scheduler.
"""

import pkgutil
import random
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)

from raysm.request.early_stopping import Asha, Median, Pbt
from raysm.request.sweep import SweepWorkload

__all__ = ["REPORTS", "VALUE", "asha", "median", "pbt", "scheduler_of"]

VALUE = "raysm_value"
"""The key of a result of Tune's under which the metric that counts stands, whatever users call it."""

REPORTS = "training_iteration"
"""The key under which Tune counts the reports of a trial."""


def scheduler_of(workload: SweepWorkload) -> TrialScheduler:
    """Return what decides who goes on; without a rule everybody does."""
    if workload.stop is None:
        return FIFOScheduler()
    scheduler: TrialScheduler = pkgutil.resolve_name(workload.stop.scheduler)(workload.stop, workload)
    return scheduler


def asha(rule: Asha, workload: SweepWorkload) -> TrialScheduler:
    """Return asynchronous successive halving."""
    return ASHAScheduler(
        time_attr=REPORTS,
        metric=VALUE,
        mode=workload.mode,
        grace_period=rule.grace,
        reduction_factor=rule.factor,
        # Beyond, a trial is done in Tune's eyes: without it the default of 100 would end all of them there.
        max_t=rule.most_reports,
    )


def median(rule: Median, workload: SweepWorkload) -> TrialScheduler:
    """Return the median rule."""
    return MedianStoppingRule(
        time_attr=REPORTS,
        metric=VALUE,
        mode=workload.mode,
        grace_period=rule.grace,
        min_samples_required=rule.least_trials,
    )


def pbt(rule: Pbt, workload: SweepWorkload) -> TrialScheduler:
    """Return population based training; parameters are varied within their ranges, which Tune's own would leave."""
    # Its own: Tune's draws from the global generator, which the user's code seeds.
    rng = random.Random(workload.seed)

    def vary(config: dict[str, Any]) -> dict[str, Any]:
        params = {name: workload.space[name].varied(value, rng) for name, value in config["params"].items()}
        return config | {"params": params}

    return _Population(
        time_attr=REPORTS,
        metric=VALUE,
        mode=workload.mode,
        perturbation_interval=rule.every,
        quantile_fraction=rule.share,
        custom_explore_fn=vary,
        # It would write a file of each perturbation into the folder of results, which is on another host here.
        log_config=False,
        # A trial's last result says how it ended, and has no value.
        require_attrs=False,
    )


class _Population(PopulationBasedTraining):  # type: ignore[misc]
    """Tune's own, for trials that a searcher numbers."""

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Take a trial into the population."""
        # Tune refuses every searcher here: one that learns would learn from parameters that change on the way. Ours
        # draws at random then (``Pbt.searches``), and is needed for the trials' numbers.
        super().on_trial_add(SimpleNamespace(search_alg=None), trial)
