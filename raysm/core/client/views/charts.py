"""Charts as Vega-Lite, made by Altair; vl-convert draws SVG and PNG without a browser."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.core.client.job.experiment import Curve
from raysm.core.client.views.sparkline import plain
from raysm.errors import MissingDependency

COLORS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#7a5fd0"]
"""The palette of Okabe and Ito, which the color-blind can distinguish, with a darker yellow."""
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
            f"charts need {error.name}, which is not installed: "
            "python3 -m pip install 'raysm[notebook]'"
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
        """Write the chart to a file and return its path.

        The suffix is .svg, .png, .pdf, .html or .json.
        """
        path = Path(path)
        chart = self.chart if path.suffix in (".html", ".json") else self._picture()
        # Without inline=True an HTML file would load its script from the network.
        chart.save(str(path), scale_factor=2, inline=path.suffix == ".html")
        return path

    def _picture(self) -> Any:
        """Return the chart without the invisible points for tooltips, which no picture needs."""
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
    """Curves by name; each point has a step (or None), a time in seconds since the epoch, and a
    value."""
    unit: str = ""
    from_zero: bool = False

    def __post_init__(self) -> None:
        # At a control character, vl-convert would end the whole process.
        object.__setattr__(self, "title", plain(self.title))
        object.__setattr__(
            self, "curves", {plain(name): curve for name, curve in self.curves.items()}
        )

    def rows(self, start_s: float, *, log: bool = False) -> list[dict[str, Any]]:
        """Return the points as Vega-Lite's data.

        ``t`` is in seconds since ``start_s``; undrawable values are None.
        """
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


def time_charts(
    charts: Sequence[Chart],
    start_s: float,
    *,
    width: int,
    height: int,
    columns: int = 1,
    log: bool = False,
) -> Any:
    """Return charts with a shared time axis as one Altair chart.

    Dragging and scrolling zoom all of them.

    Their data sets are named ``points0``, ``points1`` and so on. The axis begins at ``start_s``, in
    seconds since the epoch. ``width`` and ``height`` are those of one chart in pixels, ``columns``
    is the number of charts side by side.
    """
    import altair as alt

    drawn = []
    for number, chart in enumerate(charts or [Chart(title="", curves={})]):
        one = _time_chart(chart, f"points{number}", start_s, log=log)
        drawn.append(one.properties(width=width, height=height, name=f"view{number}"))
    if len(drawn) == 1:
        return styled(
            drawn[0].add_params(alt.selection_interval(bind="scales", encodings=["x"], name="zoom"))
        )
    whole = alt.concat(*drawn, columns=columns, spacing=16).resolve_scale(
        x="shared", color="independent"
    )
    # One zoom parameter for all views.
    select = {"type": "interval", "encodings": ["x"]}
    views = [f"view{number}" for number in range(len(drawn))]
    whole.params = [
        alt.TopLevelSelectionParameter(name="zoom", bind="scales", select=select, views=views)
    ]
    return styled(whole)


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
                legend=alt.Legend(orient="bottom", columns=4)
                if names != [chart.title] and names
                else None,
            ),
            tooltip=tooltip,
        )
    )


def styled(chart: Any) -> Any:
    axis = {
        "labelColor": NEUTRAL,
        "titleColor": NEUTRAL,
        "domainColor": NEUTRAL,
        "tickColor": NEUTRAL,
    }
    return (
        chart.configure(background="#0000", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**axis, gridColor=NEUTRAL, gridOpacity=0.25, titleFontWeight="normal")
        .configure_legend(labelColor=NEUTRAL, titleColor=NEUTRAL, labelLimit=260)
        .configure_title(color=NEUTRAL, anchor="start", fontSize=13, fontWeight=600)
    )
