"""Metrics of a script or a function: events in the log of a job, a line for people anywhere else.

In a trial of a sweep they go to the sweep, with what the trial needs to go on from there.
"""

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from raysm.bootstrap import environment
from raysm.bootstrap.variables import RAYS_JOB
from raysm.contract.events import Metric, line
from raysm.contract.names import TRIAL
from raysm.errors import InvalidRequest
from raysm.workloads.sweep import reports

__all__ = ["event_lines", "numbers", "report", "restored", "words"]


def report(*, step: int | None = None, checkpoint: str | Path | None = None, **metrics: float) -> None:
    """Report metrics, which ``job.metrics()`` and ``raysm metrics JOB`` then show.

    Works in a script and in a function; of the workers of a torchrun script, those of rank 0 count. A task of Ray
    returns its figures to whoever called it, who reports them: Ray may merge the lines of its workers. Outside of a
    job, and in a program that was sent by ``ray job submit``, they are printed for people.

    Args:
        step: Of the work, where there is one: epoch, batch, trial.
        checkpoint: A folder with what the work would need to go on from here. In a trial of a sweep it is kept on the
            head; anywhere else nobody takes it, and it stays where it is.
        metrics: Numbers by name, the unit at the end of the name: ``loss=0.25, read_bytes=1e9``.

    Raises:
        InvalidRequest: There is no metric, one is no number, the step is no whole number, or the checkpoint is no
            folder.
    """
    if not metrics:
        raise InvalidRequest("report takes metrics by name, report(loss=0.25), and got none")
    values, step = numbers(metrics), None if step is None else _whole(step)
    variables = environment.inherited()
    # All ranks of a torchrun script run the same lines; figures by the number of workers would be read as a curve that
    # jumps.
    if variables.get("RANK", "0") != "0":
        return
    of_trial, take = variables.get(TRIAL), reports.listener()
    if take is not None or of_trial:
        report_made = reports.report_of(values, step, checkpoint)
        if take is not None:
            take(report_made)
            return
        lines = [reports.send(report_made, Path(str(of_trial)))]
    # What a job of Ray's own prints is in Ray's log alone, which people read and nobody looks through for events.
    elif RAYS_JOB not in variables and environment.base_paths(variables).resource_config.exists():
        lines = event_lines(values, step)
    else:
        lines = [words(values, step)]
    # One write, so that another process that shares this output cannot cut a line in two.
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def restored() -> Path | None:
    """Return the folder of the checkpoint that a trial of a sweep goes on from; None at its beginning.

    It is what the trial gave to ``report(checkpoint=…)`` last, before its instance went away or the job was
    interrupted; with ``stop="pbt"`` it may be another trial's.
    """
    folder = environment.inherited().get(TRIAL)
    path = Path(folder) / reports.RESTORED if folder else None
    return path if path is not None and path.is_dir() else None


def numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return metrics as Python's own numbers.

    Raises:
        InvalidRequest: One is no number.
    """
    return {name: _number(name, value) for name, value in metrics.items()}


def event_lines(values: Mapping[str, float], step: int | None) -> list[str]:
    """Return metrics as the lines of a job's log, all of one moment."""
    now_s = time.time()
    # An event carries finite numbers; that a loss has become NaN is for people to read.
    return [
        line(Metric(name=name, value=value, step=step, time_s=now_s))
        if math.isfinite(value)
        else words({name: value}, step)
        for name, value in values.items()
    ]


def words(values: Mapping[str, float], step: int | None) -> str:
    """Return metrics as a line for people."""
    text = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
    return text if step is None else f"step {step}: {text}"


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # whatever is one: a tensor, a NumPy scalar
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"report: {name} must be a number, got {value!r}") from error


def _whole(step: object) -> int:
    """Return a step as Python's own number, which alone a line of the log can hold."""
    try:
        whole = int(step)  # type: ignore[call-overload]  # a NumPy scalar or a tensor too
        if whole == step:
            return int(whole)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise InvalidRequest(f"report: step must be a whole number, got {step!r}")
