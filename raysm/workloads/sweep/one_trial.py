"""A sweep inside a training job of a tuning job: its one trial is the one whose values the service has drawn.

What flows in are the sweep and the hyperparameters of the job, what flows out is the sweep of that trial: everything
else of it (workers, reports, what the best one leaves) is as in a sweep of many.
"""

import dataclasses
from collections.abc import Mapping

from raysm.contract.names import TUNING_OBJECTIVE
from raysm.errors import InvalidRequest
from raysm.request.space import Choice
from raysm.request.sweep import SweepWorkload

__all__ = ["as_launched"]


def as_launched(workload: SweepWorkload, hyperparameters: Mapping[str, str]) -> SweepWorkload:
    """Return the sweep of one trial where the service tunes; elsewhere the sweep itself.

    Raises:
        InvalidRequest: The service has drawn no value for a parameter.
    """
    # Only a tuning job tells what counts; a hyperparameter of a user's own may have any other name.
    if TUNING_OBJECTIVE not in hyperparameters:
        return workload
    missing = sorted(set(workload.space) - set(hyperparameters))
    if missing:
        raise InvalidRequest(f"the tuning job gave no value of {missing[0]!r}, which the sweep varies")
    values = {name: Choice((item.read(hyperparameters[name]),)) for name, item in workload.space.items()}
    # No rule: whether the trial is ended early is the service's to say, which sees the others.
    return dataclasses.replace(
        workload, space=values, search="grid", trials=1, stop=None, concurrency=None, time_budget_s=None
    )
