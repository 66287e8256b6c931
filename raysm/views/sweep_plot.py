"""The trials of a sweep as a picture: their parameters side by side, and below how the best value came about.

What flows in is a ``SweepResult``, what flows out is a ``Plot``.
"""

import re

from raysm.client.rendering import metric_value
from raysm.client.sweep_result import SweepResult, TrialTable
from raysm.views.charts.line_chart import Axes, line_chart
from raysm.views.charts.parallel_chart import Trace, axis_of, parallel_chart
from raysm.views.charts.series import Series
from raysm.views.plot import Plot

__all__ = ["plot_sweep"]


def plot_sweep(result: SweepResult, *, size: tuple[int, int] = (640, 460)) -> Plot:
    """Return both charts as one picture.

    Args:
        result: Of the sweep.
        size: Width and height in pixels; the upper chart has three fifths.
    """
    width, height = size
    upper = height * 3 // 5
    parallel = _parallel(result.trials, result.metric, (width, upper))
    best = _best_so_far(result.trials, result.metric, (width, height - upper))
    return Plot(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="sweep" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" fill="currentColor" style="max-width:100%">'
        f"{parallel}{_moved(best, upper)}</svg>"
    )


def _parallel(trials: TrialTable, metric: str, size: tuple[int, int]) -> str:
    rows = [trial for trial in trials.by_value() if trial.value is not None and trial.status != "failed"]
    names = list(dict.fromkeys(name for trial in rows for name in trial.params))
    # Under a name that no parameter has: a sweep over "loss" by "loss" has two axes.
    value = metric if metric not in names else f"{metric} (metric)"
    axes = [axis_of(name, [trial.params[name] for trial in rows if name in trial.params]) for name in names]
    if rows:
        axes.append(axis_of(value, [trial.value for trial in rows]))
    traces = [
        Trace(
            name=f"trial {trial.number}: {metric} = {metric_value(trial.value or 0.0)}",
            values={**trial.params, value: trial.value},
        )
        for trial in rows
    ]
    return parallel_chart(axes, traces, size=size)


def _best_so_far(trials: TrialTable, metric: str, size: tuple[int, int]) -> str:
    ended = [trial for trial in sorted(trials, key=lambda trial: trial.time_s) if trial.value is not None]
    having = [trial for trial in ended if trial.status != "failed"]
    dots = [(float(number), trial.value or 0.0) for number, trial in enumerate(having, 1)]
    steps = [(float(number), value) for number, value in enumerate(trials.best_so_far(), 1)]
    series = [
        Series(name="each trial", points=dots, style="dots"),
        Series(name="best so far", points=steps, style="steps"),
    ]
    return line_chart(series, Axes(x="trials", y=metric, width=size[0], height=size[1]))


def _moved(svg: str, y: int) -> str:
    return re.sub(r"^<svg ", f'<svg y="{y}" ', svg, count=1)
