"""The charts of a sweep: its trials in parallel coordinates, and the best value so far."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.core.client.logs.rendering import metric_value
from raysm.core.client.views.charts import COLORS, NEUTRAL, Plot, check_plotting, styled
from raysm.core.client.views.sparkline import plain
from raysm.features.sweep.client import SweepResult, TrialTable

MAX_TRIALS = 300
"""The maximum number of drawn trials, the best ones: thousands of lines cannot be distinguished."""
MAX_TICKS = 8
LOG_RATIO = 50.0
"""Positive values with a larger ratio of highest to lowest get a logarithmic axis."""
MAX_LABEL = 14


def plot_sweep(result: SweepResult, *, size: tuple[int, int] = (640, 460)) -> Plot:
    check_plotting()
    import altair as alt

    width, height = size
    metric = plain(result.metric)
    upper = _parallel(result.trials, metric).properties(
        width=width - 60, height=height * 3 // 5 - 60
    )
    lower = _best_so_far(result.trials, metric).properties(
        width=width - 60, height=height * 2 // 5 - 60
    )
    return Plot(styled(alt.vconcat(upper, lower, spacing=24).resolve_scale(color="independent")))


def _parallel(trials: TrialTable, metric: str) -> Any:
    import altair as alt

    rows = [
        trial for trial in trials.by_value() if trial.value is not None and trial.status != "failed"
    ][:MAX_TRIALS]
    params = {
        trial.number: {plain(name): each for name, each in trial.params.items()} for trial in rows
    }
    names = list(dict.fromkeys(name for of_trial in params.values() for name in of_trial))
    # A parameter may have the name of the metric; both have an axis.
    value = metric if metric not in names else f"{metric} (metric)"
    axes = [*names, value] if rows else []
    places: dict[str, dict[Any, float]] = {}
    ticks: list[dict[str, Any]] = []
    for axis in axes:
        values = [
            trial.value if axis == value else params[trial.number].get(axis, math.nan)
            for trial in rows
        ]
        places[axis] = _places(
            [each for each in values if not (isinstance(each, float) and math.isnan(each))]
        )
        ticks += [
            {"axis": axis, "place": place, "label": text} for place, text in _ticks(places[axis])
        ]
    lines = [
        {
            "trial": trial.number,
            "axis": axis,
            "place": places[axis][each],
            "value": metric_value(trial.value or 0.0),
            "rank": _rank(number, len(rows)),
        }
        # The best one last, so that it is drawn above the others.
        for number, trial in reversed(list(enumerate(rows)))
        for axis in axes
        for each in [trial.value if axis == value else params[trial.number].get(axis)]
        if each in places[axis]
    ]
    x = alt.X(
        "axis:N",
        sort=axes,
        title=None,
        axis=alt.Axis(labelAngle=0, labelLimit=110, grid=True, domain=False),
    )
    y = alt.Y("place:Q", title=None, axis=None, scale=alt.Scale(domain=[0, 1]))
    ranks = ["best", "better half", "other trials"]
    traces = (
        alt.Chart(alt.InlineData(lines))
        .mark_line(strokeWidth=1.6)
        .encode(
            x=x,
            y=y,
            detail="trial:N",
            color=alt.Color(
                "rank:N",
                title=None,
                scale=alt.Scale(domain=ranks, range=[COLORS[3], COLORS[0], "#9aa5b1"]),
                legend=alt.Legend(orient="top"),
            ),
            opacity=alt.Opacity(
                "rank:N", scale=alt.Scale(domain=ranks, range=[1.0, 0.6, 0.5]), legend=None
            ),
            tooltip=[alt.Tooltip("trial:N"), alt.Tooltip("value:N", title=metric)],
        )
    )
    labels = alt.Chart(alt.InlineData(ticks)).encode(x=x, y=y, text="label:N")
    return alt.layer(
        traces, labels.mark_text(color=NEUTRAL, align="left", dx=5, fontSize=11, fontWeight=600)
    )


def _rank(number: int, count: int) -> str:
    """Return how good a trial is, whose number counts from the best of all ``count``."""
    if number == 0:
        return "best"
    return "better half" if number < count / 2 else "other trials"


def _places(values: Sequence[Any]) -> dict[Any, float]:
    kinds = list(dict.fromkeys(values))
    if len(kinds) > 1 and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in kinds
    ):
        scale = math.log if min(kinds) > 0 and max(kinds) / min(kinds) >= LOG_RATIO else float
        low = scale(min(kinds))
        high = scale(max(kinds))
        return {each: (scale(each) - low) / (high - low) for each in sorted(kinds)}
    kinds.sort(key=str)
    return {each: (number + 0.5) / len(kinds) for number, each in enumerate(kinds)}


def _ticks(places: Mapping[Any, float]) -> list[tuple[float, str]]:
    items = list(places.items())
    if items and isinstance(items[0][0], int | float) and len(items) > MAX_TICKS // 2:
        items = [items[0], min(items, key=lambda item: abs(item[1] - 0.5)), items[-1]]
    texts = [
        (place, f"{each:.3g}" if isinstance(each, float) else plain(str(each)))
        for each, place in items[:MAX_TICKS]
    ]
    return [
        (place, text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…")
        for place, text in texts
    ]


def _best_so_far(trials: TrialTable, metric: str) -> Any:
    import altair as alt

    ended = [
        trial
        for trial in sorted(trials, key=lambda trial: trial.time_s)
        if trial.status != "failed"
    ]
    values = [trial for trial in ended if trial.value is not None]
    rows = [
        {"number": number, "value": trial.value, "best": best, "trial": trial.number}
        for number, (trial, best) in enumerate(zip(values, trials.best_so_far(), strict=True), 1)
    ]
    base = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("number:Q", title="trials", axis=alt.Axis(grid=False, tickMinStep=1))
    )
    y = alt.Y("value:Q", title=metric, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    dots = base.mark_circle(color=COLORS[0], size=30, opacity=0.7).encode(
        y=y, tooltip=[alt.Tooltip("trial:N"), alt.Tooltip("value:Q", title=metric, format=".6~g")]
    )
    steps = base.mark_line(color=COLORS[3], interpolate="step-after").encode(y=alt.Y("best:Q"))
    return alt.layer(steps, dots)
