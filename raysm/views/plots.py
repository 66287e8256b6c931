"""Plots of metrics and of sweeps, drawn by Altair; vl-convert makes SVG and PNG of them without a browser."""

import io
import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from raysm.client.experiments.experiment import MAX_POINTS, Curve, curves_of, thinned
from raysm.client.job.handle import Job
from raysm.client.logs.rendering import metric_value
from raysm.client.sweep_result import SweepResult, TrialTable
from raysm.errors import InvalidRequest, MissingDependency

__all__ = ["Plot", "check_plotting", "plot_curves", "plot_jobs", "plot_sweep"]

COLORS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#7a5fd0"]
"""The palette of Okabe and Ito, which the color-blind can tell apart, with a darker yellow."""
MAX_TRIALS = 300
"""The best trials are drawn: thousands of lines cannot be followed."""
MAX_TICKS = 8
LOG_RATIO = 50.0
"""Positive values with a larger ratio of highest to lowest get a logarithmic axis."""
MAX_LABEL = 14
MAX_ROWS = 4_500
"""Altair refuses charts with more than 5,000 rows of data."""


def check_plotting() -> None:
    """Check that Altair and vl-convert are installed.

    Raises:
        MissingDependency: One of them is not.
    """
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"charts need {error.name}, which is not installed: python3 -m pip install 'raysm[notebook]'"
        ) from error


class Plot:
    """A chart that a notebook shows and that can be saved.

    Attributes:
        chart: The Altair chart, to change it or to combine it with others.
    """

    def __init__(self, chart: Any) -> None:
        """Keep ``chart``."""
        self.chart = chart

    @property
    def svg(self) -> str:
        """The chart as SVG."""
        text = io.StringIO()
        self._picture().save(text, format="svg")
        return text.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the chart to a file and return its path; the suffix is .svg, .png, .pdf, .html or .json."""
        path = Path(path)
        chart = self.chart if path.suffix in (".html", ".json") else self._picture()
        # Without inline=True an HTML file would load its script from the network.
        chart.save(str(path), scale_factor=2, inline=path.suffix == ".html")
        return path

    def _picture(self) -> Any:
        """Return the chart without the invisible points that show tooltips: a picture has none."""
        import altair

        chart = self.chart.copy()
        if isinstance(chart, altair.Chart) and isinstance(chart.mark, altair.MarkDef):
            chart.mark.point = False
        return chart

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        import altair

        # JupyterLab and VS Code draw the first, with tooltips; all others show the picture.
        version = altair.SCHEMA_VERSION.lstrip("v").partition(".")[0]
        return {
            f"application/vnd.vegalite.v{version}+json": self.chart.to_dict(),
            "image/svg+xml": self.svg,
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        return "<raysm plot: a notebook shows it, save('plot.svg') or save('plot.png') writes it>"


def plot_jobs(jobs: Sequence[Job], *names: str, log: bool = False, size: tuple[int, int] = (640, 260)) -> Plot:
    """Return the curves of metrics of some jobs.

    Args:
        jobs: One or several.
        names: Metrics, ``"loss"``, or patterns, ``"val/*"``; without names, all of the jobs' own.
        log: Whether the y axis is logarithmic.
        size: Width and height in pixels.

    Raises:
        InvalidRequest: No job has a metric of such a name.
        MissingDependency: Altair or vl-convert is not installed.
    """
    curves = {job.name: curves_of(job.metrics()) for job in jobs}
    return plot_curves(curves, names, log=log, size=size)


def plot_curves(
    curves: Mapping[str, Mapping[str, Curve]],
    names: Sequence[str],
    *,
    log: bool = False,
    size: tuple[int, int] = (640, 260),
) -> Plot:
    """Return the curves of metrics by job; arguments and errors as of ``plot_jobs``.

    The x axis is the step, or the time since each curve's first value if one of the curves has no steps.
    """
    check_plotting()
    import altair as alt

    chosen = [
        (job, name, curve)
        for job, of_job in curves.items()
        for name, curve in of_job.items()
        if curve and (not names or any(fnmatchcase(name, pattern) for pattern in names))
    ]
    all_names = sorted({name for of_job in curves.values() for name in of_job})
    if not chosen and all_names:
        raise InvalidRequest(f"no metric is named {' or '.join(names)}; there are {', '.join(all_names)}")
    by_time = any(step is None for _, _, curve in chosen for step, _, _ in curve)
    labels = _labels([(job, name) for job, name, _ in chosen])
    most = max(20, min(MAX_POINTS, MAX_ROWS // max(1, len(chosen))))
    # Values without a logarithm are gaps, as NaN is.
    rows: list[dict[str, Any]] = [
        {"x": x, "y": None if log and y is not None and y <= 0 else y, "name": label}
        for label, (_, _, curve) in zip(labels, chosen, strict=True)
        for x, y in _points(thinned(curve, most), by_time)
    ]
    metrics = list(dict.fromkeys(name for _, name, _ in chosen))
    title = next(iter(curves)) if len(curves) == 1 else ""
    unit, unit_s = _time_unit(max((row["x"] for row in rows), default=0.0)) if by_time else ("step", 1.0)
    rows = [row | {"x": row["x"] / unit_s} for row in rows]
    width, height = size
    chart = (
        alt.Chart(alt.InlineData(rows), title=title, width=width, height=height)
        .mark_line(point=alt.OverlayMarkDef(opacity=0, size=60), strokeWidth=1.6)
        .encode(
            x=alt.X("x:Q", title=unit, axis=alt.Axis(grid=False, tickCount=6)),
            y=alt.Y(
                "y:Q",
                title=metrics[0] if len(metrics) == 1 else None,
                scale=alt.Scale(type="log") if log else alt.Scale(zero=False),
                axis=alt.Axis(tickCount=5),
            ),
            color=alt.Color(
                "name:N",
                title=None,
                scale=alt.Scale(domain=labels, range=COLORS),
                # Names of jobs in one column: viewers have fonts of other widths than the one that Vega measures.
                legend=alt.Legend(orient="bottom", columns=1 if max(map(len, labels)) > 20 else 4, labelLimit=260)
                if len(labels) > 1
                else None,
            ),
            tooltip=[
                alt.Tooltip("name:N", title="curve"),
                alt.Tooltip("x:Q", title=unit, format=",.5~r"),
                alt.Tooltip("y:Q", title="value", format=".6~g"),
            ],
        )
        .properties(autosize=alt.AutoSizeParams(type="fit", contains="padding"))
    )
    return Plot(_styled(chart))


def _styled(chart: Any) -> Any:
    return chart.configure_view(stroke=None).configure(background="white", font="system-ui, sans-serif")


def _labels(chosen: Sequence[tuple[str, str]]) -> list[str]:
    """Return what tells the curves apart: the metric, the job, or both."""
    jobs, names = {job for job, _ in chosen}, {name for _, name in chosen}
    if len(jobs) <= 1:
        return [name for _, name in chosen]
    return [job if len(names) == 1 else f"{name} {job}" for job, name in chosen]


def _time_unit(max_s: float) -> tuple[str, float]:
    units = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
    return next((unit for unit in units if max_s > 3 * unit[1]), ("seconds", 1.0))


def _points(curve: Curve, by_time: bool) -> list[tuple[float, float | None]]:
    # JSON has no NaN and no infinity: both are gaps.
    if by_time:
        # Since the first value: jobs of different days lie above each other.
        points = [(time_s - curve[0][1], value) for _, time_s, value in curve]
    else:
        # A job that was continued from a checkpoint reported some steps twice.
        points = sorted((float(step or 0), value) for step, _, value in curve)
    return [(x, y if math.isfinite(y) else None) for x, y in points]


def plot_sweep(result: SweepResult, *, size: tuple[int, int] = (640, 460)) -> Plot:
    """Return the trials of a sweep as parallel coordinates, above the best value so far.

    Args:
        result: The sweep's.
        size: Width and height in pixels.

    Raises:
        MissingDependency: Altair or vl-convert is not installed.
    """
    check_plotting()
    import altair as alt

    width, height = size
    upper = _parallel(result.trials, result.metric).properties(width=width - 60, height=height * 3 // 5 - 60)
    lower = _best_so_far(result.trials, result.metric).properties(width=width - 60, height=height * 2 // 5 - 60)
    return Plot(_styled(alt.vconcat(upper, lower, spacing=24).resolve_scale(color="independent")))


def _parallel(trials: TrialTable, metric: str) -> Any:
    import altair as alt

    rows = [trial for trial in trials.by_value() if trial.value is not None and trial.status != "failed"][:MAX_TRIALS]
    names = list(dict.fromkeys(name for trial in rows for name in trial.params))
    # A sweep over a parameter "loss" by the metric "loss" has two axes.
    value = metric if metric not in names else f"{metric} (metric)"
    axes = [*names, value] if rows else []
    places: dict[str, dict[Any, float]] = {}
    ticks: list[dict[str, Any]] = []
    for axis in axes:
        values = [trial.value if axis == value else trial.params.get(axis, math.nan) for trial in rows]
        places[axis] = _places([each for each in values if not (isinstance(each, float) and math.isnan(each))])
        ticks += [{"axis": axis, "place": place, "label": text} for place, text in _ticks(places[axis])]
    lines = [
        {
            "trial": trial.number,
            "axis": axis,
            "place": places[axis][each],
            "value": metric_value(trial.value or 0.0),
            "rank": "best" if number == 0 else "better half" if number < len(rows) / 2 else "other trials",
        }
        # The best one last: it is drawn above the others.
        for number, trial in reversed(list(enumerate(rows)))
        for axis in axes
        for each in [trial.value if axis == value else trial.params.get(axis)]
        if each in places[axis]
    ]
    x = alt.X("axis:N", sort=axes, title=None, axis=alt.Axis(labelAngle=0, labelLimit=110, grid=True, domain=False))
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
            opacity=alt.Opacity("rank:N", scale=alt.Scale(domain=ranks, range=[1.0, 0.6, 0.5]), legend=None),
            tooltip=[alt.Tooltip("trial:N"), alt.Tooltip("value:N", title=metric)],
        )
    )
    labels = alt.Chart(alt.InlineData(ticks)).encode(x=x, y=y, text="label:N")
    text: dict[str, Any] = {"align": "left", "dx": 5, "fontSize": 10}
    # Below each label the same in white and wider, so that it can be read above lines.
    halo = labels.mark_text(stroke="white", strokeWidth=3, **text)
    return alt.layer(traces, halo, labels.mark_text(color="#333", **text))


def _places(values: Sequence[Any]) -> dict[Any, float]:
    """Return where each value of a parameter lies on its axis, from 0 (bottom) to 1."""
    kinds = list(dict.fromkeys(values))
    if len(kinds) > 1 and all(isinstance(each, int | float) and not isinstance(each, bool) for each in kinds):
        scale = math.log if min(kinds) > 0 and max(kinds) / min(kinds) >= LOG_RATIO else float
        low, high = scale(min(kinds)), scale(max(kinds))
        return {each: (scale(each) - low) / (high - low) for each in sorted(kinds)}
    kinds.sort(key=str)
    return {each: (number + 0.5) / len(kinds) for number, each in enumerate(kinds)}


def _ticks(places: Mapping[Any, float]) -> list[tuple[float, str]]:
    items = list(places.items())
    if items and isinstance(items[0][0], int | float) and len(items) > MAX_TICKS // 2:
        items = [items[0], min(items, key=lambda item: abs(item[1] - 0.5)), items[-1]]
    texts = [(place, f"{each:.3g}" if isinstance(each, float) else str(each)) for each, place in items[:MAX_TICKS]]
    return [(place, text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…") for place, text in texts]


def _best_so_far(trials: TrialTable, metric: str) -> Any:
    import altair as alt

    ended = [trial for trial in sorted(trials, key=lambda trial: trial.time_s) if trial.status != "failed"]
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
