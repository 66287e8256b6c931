"""Metrics of a script or a function: events in the log of a job, a line for people anywhere else."""

import math
import sys
import time
from collections.abc import Mapping

from raysm.bootstrap import environment
from raysm.contract.events import Metric, line
from raysm.errors import InvalidRequest

__all__ = ["report"]


def report(*, step: int | None = None, **metrics: float) -> None:
    """Report metrics, which ``job.metrics()`` and ``raysm metrics JOB`` then show.

    Works in a script and in a function; of the workers of a torchrun script, those of rank 0 count. A task of Ray
    returns its figures to whoever called it, who reports them: Ray may merge the lines of its workers. Outside of a
    job they are printed for people.

    Args:
        step: Of the work, where there is one: epoch, batch, trial.
        metrics: Numbers by name, the unit at the end of the name: ``loss=0.25, read_bytes=1e9``.

    Raises:
        InvalidRequest: There is no metric, or one is no number.
    """
    if not metrics:
        raise InvalidRequest("report takes metrics by name, report(loss=0.25), and got none")
    values = {name: _number(name, value) for name, value in metrics.items()}
    variables = environment.inherited()
    # All ranks of a torchrun script run the same lines; figures by the number of workers would be read as a curve that
    # jumps.
    if variables.get("RANK", "0") != "0":
        return
    if environment.base_paths(variables).resource_config.exists():
        now_s = time.time()
        # An event carries finite numbers; that a loss has become NaN is for people to read.
        lines = [
            line(Metric(name=name, value=value, step=step, time_s=now_s))
            if math.isfinite(value)
            else _words({name: value}, step)
            for name, value in values.items()
        ]
    else:
        lines = [_words(values, step)]
    # One write, so that another process that shares this output cannot cut a line in two.
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # whatever is one: a tensor, a NumPy scalar
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"report: {name} must be a number, got {value!r}") from error


def _words(values: Mapping[str, float], step: int | None) -> str:
    words = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
    return words if step is None else f"step {step}: {words}"
