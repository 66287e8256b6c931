"""A sweep on the formed cluster: the trials by Ray Tune, the result on the head.

What flows in are the workload and, where the space is a function, its pickle; what flows out is the table of the trials
and what the best one left. What has been found is kept beside the checkpoints, where there are any, so that a job that
is interrupted, and one that is sent with ``resume``, goes on where it stopped.
"""

import time
from collections.abc import Callable
from typing import Any

import ray

from raysm.bootstrap.log import emit_event
from raysm.request.sweep import SweepWorkload
from raysm.workloads.nodes import cluster_nodes
from raysm.workloads.pickles import unpickled
from raysm.workloads.runner import Runner, naming_what_is_missing
from raysm.workloads.sweep.one_trial import as_launched
from raysm.workloads.termination import leave_on_sigterm

__all__ = ["SweepRunner"]


class SweepRunner(Runner[SweepWorkload]):
    """Runs the trials."""

    def run(self, address: str) -> None:
        """Run them all; ``workloads.sweep.run`` says what it raises."""
        # Optuna, or what Ray Tune needs (pandas, among others), of which Tune speaks in words of its own.
        with naming_what_is_missing(self.workload, "what Ray Tune needs (pandas, among others)"):
            from raysm.workloads.sweep.journal import Journal, key_of
            from raysm.workloads.sweep.output import summary_of, write_result
            from raysm.workloads.sweep.run import Sweep
            from raysm.workloads.sweep.search import drawing_by
        self.workload = as_launched(self.workload, self.environment.hyperparameters)
        print(self.workload.plan, flush=True)  # noqa: T201
        begun_s = time.monotonic()
        # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
        ray.init(address=address, configure_logging=False)
        # What is known of the trials is on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm()
        root = self.environment.paths.sweep(lasting=self.environment.has_checkpoints)
        function = self.space_function()
        draw = None if function is None else drawing_by(function, self.workload.title)
        try:
            outcome = Sweep(workload=self.workload, draw=draw, root=root, emit_event=emit_event).run(cluster_nodes())
            journal = Journal(root, key_of(self.workload))
            described = write_result(outcome, self.workload, journal, self.environment.paths.model)
        finally:
            ray.shutdown()
        summary = summary_of(outcome, self.workload)
        self.describe_result(
            {"trials": outcome.seconds, "whole": time.monotonic() - begun_s},
            packages=self.workload.packages,
            described=described,
            measures={
                "trials": float(len(outcome.entries)),
                "resumed_trials": float(outcome.resumed),
                "placement_groups_left": float(outcome.groups_left),
            },
            summary=". ".join([summary, *outcome.notes]),
        )
        journal.remove()

    def space_function(self) -> Callable[[Any], Any] | None:
        """Return the function that draws the parameters; None where ranges say what they may be."""
        if not self.workload.draws_itself:
            return None
        _, (draw,), _ = unpickled(self.payload.function, self.workload.title)
        function: Callable[[Any], Any] = draw
        return function
