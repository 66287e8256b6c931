"""Runs a sweep on the formed cluster: its trials on Ray actors, its result on the head."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray

from raysm.bootstrap.log import emit_event
from raysm.contract.names import TUNING_OBJECTIVE
from raysm.errors import InvalidRequest
from raysm.request.space import Choice
from raysm.request.sweep import SweepWorkload
from raysm.workloads.failure import unpickled
from raysm.workloads.nodes import cluster_nodes
from raysm.workloads.runner import Runner, leave_on_sigterm, naming_what_is_missing

__all__ = ["SweepRunner", "as_launched"]


class SweepRunner(Runner[SweepWorkload]):
    """Runs the trials."""

    def run(self, address: str) -> None:
        """Run all trials and write the result; ``workloads.sweep.run.Sweep.run`` lists the errors."""
        with naming_what_is_missing(self.workload):
            from raysm.workloads.sweep.result import summary_of, write_result
            from raysm.workloads.sweep.run import Sweep
            from raysm.workloads.sweep.study import drawing_by
        self.workload = as_launched(self.workload, self.environment.hyperparameters)
        print(self.workload.plan, flush=True)  # noqa: T201
        begun_s = time.monotonic()
        ray.init(address=address, configure_logging=False)
        # The journal is on disk at all times, so SIGTERM may end the process anywhere.
        leave_on_sigterm()
        root = self.environment.paths.sweep(lasting=self.environment.has_checkpoints)
        function = self.space_function()
        draw = None if function is None else drawing_by(function, self.workload.title)
        sweep = Sweep(workload=self.workload, draw=draw, root=root, emit_event=emit_event)
        try:
            outcome = sweep.run(cluster_nodes())
            described = write_result(outcome, self.workload, sweep.study.files, self.environment.paths.model)
        finally:
            ray.shutdown()
        self.describe_result(
            {"trials": outcome.seconds, "whole": time.monotonic() - begun_s},
            packages=self.workload.packages,
            described=described,
            measures={"trials": float(len(outcome.entries)), "resumed_trials": float(outcome.resumed)},
            summary=". ".join([summary_of(outcome, self.workload), *outcome.notes]),
        )
        sweep.study.remove()

    def space_function(self) -> Callable[[Any], Any] | None:
        """Return the user's function that draws the parameters; None if the space is ranges."""
        if not self.workload.draws_itself:
            return None
        _, (draw,), _ = unpickled(self.payload.function, self.workload.title)
        function: Callable[[Any], Any] = draw
        return function


def as_launched(workload: SweepWorkload, hyperparameters: Mapping[str, str]) -> SweepWorkload:
    """Return the sweep to run: inside a tuning job of the service one trial with the values that the service chose.

    Raises:
        InvalidRequest: The service chose no value for a parameter.
    """
    # Only a tuning job sets this; a user's own hyperparameters may have any other name.
    if TUNING_OBJECTIVE not in hyperparameters:
        return workload
    missing = sorted(set(workload.space) - set(hyperparameters))
    if missing:
        raise InvalidRequest(f"the tuning job gave no value of {missing[0]!r}, which the sweep varies")
    values = {name: Choice((item.read(hyperparameters[name]),)) for name, item in workload.space.items()}
    # Without a rule: the service, which sees the other trials, decides whether this one ends early.
    return dataclasses.replace(
        workload, space=values, search="grid", trials=1, stop=None, concurrency=None, time_budget_s=None
    )
