"""Ray Tune's schedulers of the rules by which trials are ended early, each made of its rule's numbers.

What flows in is the workload whose ``stop`` names one of these functions, what flows out is the scheduler.
"""

import math
import pkgutil
import random
from collections.abc import Mapping
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

__all__ = ["NOT_FINITE", "REPORTS", "VALUE", "asha", "median", "pbt", "reports_of", "scheduler_of"]

VALUE = "raysm_value"
"""The key of a result of Tune's under which the metric that counts stands, whatever users call it."""

NOT_FINITE = "raysm_not_finite"
"""The key of a result that has no value because the metric that counts was not finite."""

REPORTS = "training_iteration"
"""The key under which Tune counts the reports of a trial, from where this run of the sweep has begun with it."""


def reports_of(config: Mapping[str, Any], result: Mapping[str, Any]) -> int:
    """Return how often a trial has reported, with what it did before the sweep was interrupted."""
    count: int = config["reports"] + result[REPORTS]
    return count


def scheduler_of(workload: SweepWorkload) -> TrialScheduler:
    """Return what decides who goes on; without a rule everybody does."""
    if workload.stop is None:
        return FIFOScheduler()
    scheduler: TrialScheduler = pkgutil.resolve_name(workload.stop.scheduler)(workload.stop, workload)
    return scheduler


def asha(rule: Asha, workload: SweepWorkload) -> TrialScheduler:
    """Return asynchronous successive halving."""
    return _Halving(rule, workload)


def median(rule: Median, workload: SweepWorkload) -> TrialScheduler:
    """Return the median rule."""
    return _Median(rule, workload)


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


class _Halving(ASHAScheduler):  # type: ignore[misc]
    """Tune's own, for trials that may have been interrupted, and may diverge."""

    def __init__(self, rule: Asha, workload: SweepWorkload) -> None:
        super().__init__(
            time_attr=REPORTS,
            metric=VALUE,
            mode=workload.mode,
            grace_period=rule.grace,
            reduction_factor=rule.factor,
            # Beyond, a trial is done in Tune's eyes: without it the default of 100 would end all of them there.
            max_t=rule.most_reports,
        )
        self._rule = rule
        self._compared: dict[str, int] = {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> Any:
        """Compare a trial where it has come to a rung."""
        count = reports_of(trial.config, result)
        # Rungs that it passed before an interruption are over for it: Tune would take a later value for that of each.
        last = self._compared.get(trial.trial_id, trial.config["reports"])
        if not (VALUE in result or NOT_FINITE in result) or count < self._rule.next_rung(last):
            return self.CONTINUE
        self._compared[trial.trial_id] = count
        # The worst there is, whoever the others are: as a value it would make Tune's percentiles NaN.
        if NOT_FINITE in result:
            return self.STOP
        return super().on_trial_result(tune_controller, trial, {**result, REPORTS: count})

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Compare it no more: each report was judged as it came."""


class _Median(MedianStoppingRule):  # type: ignore[misc]
    """Tune's own, for trials that may have been interrupted, may diverge, and end with a result that has no value."""

    def __init__(self, rule: Median, workload: SweepWorkload) -> None:
        super().__init__(
            time_attr=REPORTS,
            metric=VALUE,
            mode=workload.mode,
            grace_period=rule.grace,
            min_samples_required=rule.least_trials,
            # For ever: Tune pauses trials while there are too few to compare; without checkpoints they begin anew.
            min_time_slice=math.inf,
        )
        self._grace = rule.grace

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> Any:
        """Compare a trial."""
        count = reports_of(trial.config, result)
        if NOT_FINITE in result:
            return self.STOP if count >= self._grace else self.CONTINUE
        return super().on_trial_result(tune_controller, trial, {**result, REPORTS: count})

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Take the last result for no report: Tune would look for a value in it, and fail."""


class _Population(PopulationBasedTraining):  # type: ignore[misc]
    """Tune's own, for trials that a searcher numbers."""

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Take a trial into the population."""
        # Tune refuses every searcher here: one that learns would learn from parameters that change on the way. Ours
        # draws at random then (``Pbt.searches``), and is needed for the trials' numbers.
        super().on_trial_add(SimpleNamespace(search_alg=None), trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> Any:
        """Take a trial's turn, and let it go on from another's weights if it is among the worst."""
        # Without a value it would go on alone, with its NaN, and take nobody's turn into account.
        if NOT_FINITE in result:
            result = {**result, VALUE: math.inf if self._mode == "min" else -math.inf}
        return super().on_trial_result(tune_controller, trial, result)
