"""A trial of a function: in the trial's own process, or in several that train together.

What flows in is a ``TrialRun`` and the payload's pickle, what flows out is what the function returned; its reports go
to the trial meanwhile.
"""

from typing import Any, cast

from raysm.contract import payload
from raysm.request.sweep import FunctionSweep
from raysm.workloads.pickles import unpickled
from raysm.workloads.sweep.calling import call, end_training
from raysm.workloads.sweep.reports import listening
from raysm.workloads.sweep.trial import TrialRun

__all__ = ["run_function"]


def run_function(run: TrialRun) -> Any:
    """Call the function with the trial's parameters; return its value, of several workers that of rank 0."""
    workload = cast(FunctionSweep, run.workload)
    if workload.workers > 1:
        # Only now: it imports torch, which a function in one process may do without.
        from raysm.workloads.sweep.group import run_group

        return run_group(run)
    # Anew for each trial, though the process may be reused: what one trial changes in it another would see.
    function, _, _ = unpickled(run.here.payload / payload.FUNCTION, workload.name)
    with listening(run.take):
        try:
            return call(function, run.params, takes_config=workload.takes_config)
        finally:
            end_training()
