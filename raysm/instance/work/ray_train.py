"""Report the first values that are not finite of what a program reports to Ray Train."""

import math
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from raysm.core.protocol.events import describe_not_finite, line
from raysm.core.protocol.names import STOP_ON_NAN
from raysm.errors import MetricDiverged
from raysm.instance import environment
from raysm.instance.variables import RAYS_JOB
from raysm.instance.work.report import find_diverged, metrics_of

STEPS = ("step", "global_step", "iteration", "epoch")
"""Names under which programs report their step; the first one counts."""

_said: set[str] = set()


def report_not_finite(metrics: Mapping[str, Any], number: int, rank: int) -> None:
    """Report each metric whose value is NaN or infinite for the first time in this process.

    Args:
        metrics: What the program gives to ``ray.train.report``.
        number: Of this report, from 1; it is the step if the metrics have none.
        rank: Of this worker.

    Raises:
        MetricDiverged: It is the metric of the job's ``stop_on_nan``.
    """
    # A tensor is not read: that would wait for the GPU.
    values = {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, Real) and not math.isfinite(value) and name not in _said
    }
    variables = environment.inherited()
    # A job of Ray's own prints into Ray's log, which only people read.
    if not values or RAYS_JOB in variables:
        return
    _said.update(values)
    steps = (metrics[name] for name in STEPS if isinstance(metrics.get(name), Integral))
    found = metrics_of(values, int(next(steps, number)), rank)
    # One write, so that another process that shares this output cannot cut a line in two.
    sys.stdout.write("\n".join(map(line, found)) + "\n")
    sys.stdout.flush()
    diverged = find_diverged(found, variables.get(STOP_ON_NAN))
    if diverged is not None:
        raise MetricDiverged(describe_not_finite(diverged))
