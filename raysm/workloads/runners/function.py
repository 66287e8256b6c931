"""Calls the pickled function on the head; its value is ``result.pkl`` in the model folder."""

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from raysm.bootstrap.exit_status import exit_by_signal
from raysm.contract.result import VALUE
from raysm.contract.store import put
from raysm.request.programs import PickledFunction
from raysm.workloads.failure import failure_of, pickled_value, unpickled
from raysm.workloads.runner import Runner

__all__ = ["FunctionRunner", "run_function"]


class FunctionRunner(Runner[PickledFunction]):
    """Calls the function."""

    def run(self, address: str) -> None:
        """Call it, and keep its value."""
        run_function(self.payload.function, self.workload.name, self.environment.paths.model)


def run_function(pickled: Path, name: str, model: Path) -> None:
    """Call the function of ``pickled`` with Ray initialised, and keep its value in the folder ``model``.

    Raises:
        InvalidPayload: It cannot be unpickled here.
        InvalidRequest: Its value cannot be pickled.
    """
    function, args, kwargs = unpickled(pickled, name)
    # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
    ray.init(address="auto")
    # Once only, and after Ray has put its own handler in place: the function may save its work in a ``finally``.
    signal.signal(signal.SIGTERM, exit_by_signal)
    try:
        # While Ray lives: what refers to the cluster can be pickled only then.
        content = pickled_value(_value(function, args, kwargs), name)
    finally:
        ray.shutdown()
    put(model / VALUE, content)


def _value(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except SystemExit as error:
        # As in a session: sys.exit(0), with which many a main() ends, is an end like any other, and the job Completed.
        if failure_of(error) is not None:
            raise
        return None
