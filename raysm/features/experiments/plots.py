"""Charts of metrics and of sweeps as Vega-Lite, made by Altair; vl-convert draws SVG and PNG without a browser."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from raysm.core.client.job.handle import Job
from raysm.core.client.logs.rendering import metric_value
from raysm.errors import InvalidRequest, MissingDependency
from raysm.features.experiments.experiment import MAX_POINTS, Curve, curves_of, thinned
from raysm.features.experiments.sparkline import plain
from raysm.features.sweep.client import SweepResult, TrialTable

COLORS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#7a5fd0"]
"""The palette of Okabe and Ito, which the color-blind can distinguish, with a darker yellow."""
MAX_TRIALS = 300
"""The maximum number of drawn trials, the best ones: thousands of lines cannot be distinguished."""
MAX_TICKS = 8
LOG_RATIO = 50.0
"""Positive values with a larger ratio of highest to lowest get a logarithmic axis."""
MAX_LABEL = 14
MAX_ROWS = 4_500
"""Below the 5,000 rows of data that Altair accepts."""
NEUTRAL = "#808080"
"""Its contrast is about 4 on white and 4.5 on the dark pages of JupyterLab and Ray."""
VALUE_LABEL = "format(datum.value, abs(datum.value) < 1000 ? '~g' : '~s')"
TIME_LABEL = (
    "datum.value < 600 ? format(datum.value, '~r') + ' s' :"
    " floor(datum.value / 3600) + ':' + utcFormat(datum.value * 1000, '%M:%S')"
)
"""A Vega expression that formats seconds, from 10 minutes on as hours:minutes:seconds."""


def check_plotting() -> None:
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
        self.chart = chart

    @property
    def svg(self) -> str:
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
        """Return the chart without the invisible points for tooltips, which a picture does not need."""
        chart = self.chart.copy()
        for each in getattr(chart, "concat", [chart]):
            if hasattr(getattr(each, "mark", None), "point"):
                each.mark.point = False
        return chart

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        import altair

        # JupyterLab and VS Code draw Vega-Lite with tooltips; other notebooks show the SVG.
        version = altair.SCHEMA_VERSION.lstrip("v").partition(".")[0]
        texts = {"image/svg+xml": self.svg, "text/plain": repr(self)}
        return {f"application/vnd.vegalite.v{version}+json": self.chart.to_dict(), **texts}

    def __repr__(self) -> str:
        return "<raysm plot: a notebook shows it, save('plot.svg') or save('plot.png') writes it>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    title: str
    curves: Mapping[str, Curve]
    """Curves by name; each point has a step (or None), a time in seconds since the epoch, and a value."""
    unit: str = ""
    from_zero: bool = False

    def __post_init__(self) -> None:
        # At a control character, vl-convert would end the whole process.
        object.__setattr__(self, "title", plain(self.title))
        object.__setattr__(self, "curves", {plain(name): curve for name, curve in self.curves.items()})

    def rows(self, start_s: float, *, log: bool = False) -> list[dict[str, Any]]:
        """Return the points as Vega-Lite's data: ``t`` is in seconds since ``start_s``; undrawable values are None."""
        return [
            {
                "t": round(time_s - start_s, 3),
                "v": value if math.isfinite(value) and (value > 0 or not log) else None,
                "name": name,
                **({} if step is None else {"step": step}),
            }
            for name, curve in self.curves.items()
            for step, time_s, value in curve
        ]


def plot_job(job: Job, *names: str, log: bool = False, size: tuple[int, int] = (640, 200)) -> Plot:
    check_plotting()
    curves = curves_of(job.metrics())
    chosen = {name: curve for name, curve in curves.items() if not names or any(fnmatchcase(name, p) for p in names)}
    if curves and not chosen:
        raise InvalidRequest(f"no metric is named {' or '.join(names)}; there are {', '.join(sorted(curves))}")
    max_points = max(20, min(MAX_POINTS, MAX_ROWS // max(1, len(chosen))))
    charts = [Chart(title=name, curves={name: thinned(curve, max_points)}) for name, curve in chosen.items()]
    first_s = min((curve[0][1] for curve in chosen.values()), default=0.0)
    started = job.describe().started
    # The clocks of the service and of the instances differ.
    start_s = first_s if started is None else min(first_s, started.timestamp())
    width, height = size
    return Plot(time_charts(charts, start_s, width=width, height=height, log=log).properties(title=job.name))


def time_charts(
    charts: Sequence[Chart], start_s: float, *, width: int, height: int, columns: int = 1, log: bool = False
) -> Any:
    """Return charts with a shared time axis as one Altair chart, in which dragging and scrolling zoom all of them.

    Their data sets are named ``points0``, ``points1`` and so on. The axis begins at ``start_s``, in seconds since the
    epoch. ``width`` and ``height`` are those of one chart in pixels, ``columns`` is the number of charts side by side.
    """
    import altair as alt

    drawn = []
    for number, chart in enumerate(charts or [Chart(title="", curves={})]):
        one = _time_chart(chart, f"points{number}", start_s, log=log)
        drawn.append(one.properties(width=width, height=height, name=f"view{number}"))
    if len(drawn) == 1:
        return _styled(drawn[0].add_params(alt.selection_interval(bind="scales", encodings=["x"], name="zoom")))
    whole = alt.concat(*drawn, columns=columns, spacing=16).resolve_scale(x="shared", color="independent")
    # One zoom parameter for all views.
    select = {"type": "interval", "encodings": ["x"]}
    views = [f"view{number}" for number in range(len(drawn))]
    whole.params = [alt.TopLevelSelectionParameter(name="zoom", bind="scales", select=select, views=views)]
    return _styled(whole)


def _time_chart(chart: Chart, data: str, start_s: float, *, log: bool) -> Any:
    import altair as alt

    names = list(chart.curves)
    unit = chart.unit or "value"
    has_steps = any(step is not None for curve in chart.curves.values() for step, _, _ in curve)
    tooltip = [
        alt.Tooltip("name:N", title=chart.title),
        alt.Tooltip("v:Q", title=unit, format=".6~g"),
        alt.Tooltip("t:Q", title="seconds since the start", format=",.1f"),
        alt.Tooltip("clock:T", title="time", format="%Y-%m-%d %H:%M:%S"),
        *([alt.Tooltip("step:Q", title="step")] if has_steps else []),
    ]
    return (
        alt.Chart(alt.InlineData(chart.rows(start_s, log=log), name=data), title=chart.title)
        .transform_calculate(clock=f"toDate({start_s * 1000:.0f} + 1000 * datum.t)")
        # The invisible points are for tooltips.
        .mark_line(point=alt.OverlayMarkDef(opacity=0, size=80), strokeWidth=1.6, clip=True)
        .encode(
            x=alt.X(
                "t:Q",
                title="since the start",
                axis=alt.Axis(grid=False, tickCount=6, labelExpr=TIME_LABEL),
                scale=alt.Scale(nice=False, zero=False),
            ),
            y=alt.Y(
                "v:Q",
                title=chart.unit or None,
                scale=alt.Scale(type="log") if log else alt.Scale(zero=chart.from_zero),
                axis=alt.Axis(tickCount=4, labelExpr=VALUE_LABEL),
            ),
            color=alt.Color(
                "name:N",
                title=None,
                scale=alt.Scale(domain=names, range=COLORS),
                legend=alt.Legend(orient="bottom", columns=4) if names != [chart.title] and names else None,
            ),
            tooltip=tooltip,
        )
    )


def _styled(chart: Any) -> Any:
    axis = {"labelColor": NEUTRAL, "titleColor": NEUTRAL, "domainColor": NEUTRAL, "tickColor": NEUTRAL}
    return (
        chart.configure(background="#0000", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**axis, gridColor=NEUTRAL, gridOpacity=0.25, titleFontWeight="normal")
        .configure_legend(labelColor=NEUTRAL, titleColor=NEUTRAL, labelLimit=260)
        .configure_title(color=NEUTRAL, anchor="start", fontSize=13, fontWeight=600)
    )


def plot_sweep(result: SweepResult, *, size: tuple[int, int] = (640, 460)) -> Plot:
    check_plotting()
    import altair as alt

    width, height = size
    metric = plain(result.metric)
    upper = _parallel(result.trials, metric).properties(width=width - 60, height=height * 3 // 5 - 60)
    lower = _best_so_far(result.trials, metric).properties(width=width - 60, height=height * 2 // 5 - 60)
    return Plot(_styled(alt.vconcat(upper, lower, spacing=24).resolve_scale(color="independent")))


def _parallel(trials: TrialTable, metric: str) -> Any:
    import altair as alt

    rows = [trial for trial in trials.by_value() if trial.value is not None and trial.status != "failed"][:MAX_TRIALS]
    params = {trial.number: {plain(name): each for name, each in trial.params.items()} for trial in rows}
    names = list(dict.fromkeys(name for of_trial in params.values() for name in of_trial))
    # A parameter may have the name of the metric; both have an axis.
    value = metric if metric not in names else f"{metric} (metric)"
    axes = [*names, value] if rows else []
    places: dict[str, dict[Any, float]] = {}
    ticks: list[dict[str, Any]] = []
    for axis in axes:
        values = [trial.value if axis == value else params[trial.number].get(axis, math.nan) for trial in rows]
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
        # The best one last, so that it is drawn above the others.
        for number, trial in reversed(list(enumerate(rows)))
        for axis in axes
        for each in [trial.value if axis == value else params[trial.number].get(axis)]
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
    return alt.layer(traces, labels.mark_text(color=NEUTRAL, align="left", dx=5, fontSize=11, fontWeight=600))


def _places(values: Sequence[Any]) -> dict[Any, float]:
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
    texts = [
        (place, f"{each:.3g}" if isinstance(each, float) else plain(str(each))) for each, place in items[:MAX_TICKS]
    ]
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
