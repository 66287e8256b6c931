"""Curves as one SVG element: ``line_chart`` is all that other modules call. Pure: series flow in, text flows out.

The element has no style sheet, script, link or id, so that it changes nothing of the page that it stands in, and many
may stand in one page. Text and axes have the color of the text around them: dark on light pages, light on dark ones.
"""

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from raysm.views.charts import scale
from raysm.views.charts.scale import Scale, text_width
from raysm.views.charts.series import Point, Series, segments, thinned

__all__ = ["Axes", "line_chart"]

COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#7a5fd0")
"""Told apart by the color-blind too (Okabe and Ito, the yellow darker), on white as on black."""

DASHES = ("", "6 3", "2 3")
"""Of the curves beyond the last color, and beyond those."""

FONT = 11.0
LINE = 16.0
"""Height of a font and of a line of text, in pixels."""

MARGIN = 10.0
MARK = 16.0
"""Width of a legend's mark, with the gap behind it."""

MOST_POINTS = 400
"""Of one curve: about two in three pixels, in 6 kB."""

MOST_NAMED = 12
"""Curves in the legend; of more, it says how many."""

LARGEST = 1e300
"""Values beyond are drawn at the edge: the difference of two of them must still be a number."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What XML cannot hold, escaped or not; terminals' colors begin with one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """What a chart shows beside its curves."""

    title: str = ""
    """Above it."""
    x: str = ""
    """What lies on the x axis."""
    y: str = ""
    """What lies on the y axis, with its unit."""
    width: int = 640
    """Pixels; the element becomes smaller where there is less room."""
    height: int = 260
    """Pixels."""
    is_time: bool = False
    """Whether x is in seconds, marked in minutes, hours or days where there are many."""
    is_log: bool = False
    """Whether powers of ten lie side by side on the y axis; values of 0 and below are gaps."""
    from_zero: bool = False
    """Whether the y axis begins at 0, for counts and rates; not with ``is_log``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Frame:
    """The rectangle of the curves, in pixels, with its axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Scale
    y: Scale

    def at(self, point: Point) -> tuple[float, float]:
        # Differences of larger ones are infinite, and so would be every place on the axis.
        x, y = (min(max(value, -LARGEST), LARGEST) for value in point)
        return (
            self.left + self.x.place(x) * (self.right - self.left),
            self.bottom - self.y.place(y) * (self.bottom - self.top),
        )


def line_chart(series: Sequence[Series], axes: Axes | None = None) -> str:
    """Return curves as one ``<svg>`` element, in which every name is escaped.

    Args:
        series: The curves, each in a color of its own; without any, the chart says that there are no values.
        axes: Title, labels, size; None is a plain one.
    """
    axes = axes or Axes()
    # The legend first: how many lines it takes says where the curves begin.
    drawn = [_Curve.of(one, number, axes) for number, one in enumerate(series)]
    # A curve that is alone under a title of its own name needs no second one.
    legend, top = _legend([curve for curve in drawn if curve.series.name not in ("", axes.title)], axes)
    frame = _frame([point for curve in drawn for part in curve.parts for point in part], axes, top)
    shapes = [shape for curve in drawn for shape in curve.shapes(frame)]
    # Axes before curves: SVG draws what comes later above what came before.
    body = [*_axes(frame, axes), *legend, *(shapes or [_text("no values", axes.width / 2, axes.height / 2, "middle")])]
    label = _escaped(axes.title or axes.y or "chart")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'viewBox="0 0 {axes.width} {axes.height}" width="{axes.width}" height="{axes.height}" '
        f'font-family="system-ui, sans-serif" font-size="{FONT:g}" fill="currentColor" style="max-width:100%">'
        f"{''.join(body)}</svg>"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Curve:
    """One curve as it is drawn."""

    series: Series
    parts: list[list[Point]]
    color: str
    dash: str

    @classmethod
    def of(cls, series: Series, number: int, axes: Axes) -> "_Curve":
        # What has no logarithm is a gap, and not a fall to the foot of the chart.
        points = [(x, y if y > 0 or not axes.is_log else float("nan")) for x, y in series.points]
        parts = list(segments(points))
        count = sum(map(len, parts))
        return cls(
            series=series,
            # Each stretch its share: of a curve with many gaps there are no more points than of one without.
            parts=[thinned(part, max(4, MOST_POINTS * len(part) // count)) for part in parts[:MOST_POINTS]],
            color=COLORS[number % len(COLORS)],
            # Dashes once the colors are used up: two curves are never alike before the twenty-fifth.
            dash=DASHES[number // len(COLORS) % len(DASHES)],
        )

    def shapes(self, frame: _Frame) -> list[str]:
        lines = [] if self.series.style == "dots" else [part for part in self.parts if len(part) > 1]
        # A point with a gap on each side is no line, and would not be seen.
        dots = self.parts if self.series.style == "dots" else [part for part in self.parts if len(part) == 1]
        dash = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        name = f"<title>{_escaped(self.series.name)}</title>"
        return [
            f'<path d="{self._path(part, frame)}" fill="none" stroke="{self.color}" stroke-width="1.6" '
            f'stroke-linejoin="round"{dash}>{name}</path>'
            for part in lines
        ] + [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{self.color}">{name}</circle>'
            for part in dots
            for x, y in map(frame.at, part)
        ]

    def _path(self, part: list[Point], frame: _Frame) -> str:
        (x, y), *rest = map(frame.at, part)
        steps = self.series.style == "steps"
        return f"M{x:.1f},{y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f},{y:.1f}" for x, y in rest)


def _frame(points: list[Point], axes: Axes, top: float) -> _Frame:
    bottom = axes.height - MARGIN - LINE - (LINE if axes.x else 0)
    most_y = max(2, int((bottom - top) / (2 * LINE)))
    ys = [min(max(y, -LARGEST), LARGEST) for _, y in points]
    if axes.from_zero:
        # Nothing but zeros lies at the foot, not in the middle.
        ys = [0.0, *ys] if any(ys) else [0.0, 1.0]
    y = (scale.logarithmic if axes.is_log else scale.linear)(ys, most_y)
    # As wide as the labels of the y axis: nobody else measures text in a file without a browser.
    left = MARGIN + max((text_width(label, FONT) for _, label in y.ticks), default=0) + 6
    right = axes.width - MARGIN - FONT
    return _Frame(left=left, top=top, right=right, bottom=bottom, x=_x_scale(points, axes, right - left), y=y)


def _x_scale(points: list[Point], axes: Axes, width: float) -> Scale:
    xs = [min(max(x, -LARGEST), LARGEST) for x, _ in points]
    make = scale.elapsed if axes.is_time else scale.linear
    # Between two steps of a training there is none: no mark at 0.5, and none at 2.5.
    is_whole = not axes.is_time and all(x == int(x) for x in xs)
    whole = int(max(xs) - min(xs)) + 1 if xs and is_whole else math.inf
    # The wider the labels the fewer of them: until none touches its neighbour.
    for most in (10, 8, 6, 5, 4, 3):
        x_scale = make(xs, int(min(most, max(2, whole))))
        room = width / max(1, len(x_scale.ticks) - 1)
        has_room = all(text_width(label, FONT) + FONT <= room for _, label in x_scale.ticks)
        if has_room and not (is_whole and any(value % 1 for value, _ in x_scale.ticks)):
            return _tight(x_scale, xs)
    return _tight(make(xs, 2), xs)


def _tight(loose: Scale, xs: list[float]) -> Scale:
    """Return the axis from the first x to the last: a curve fills its chart."""
    low, high = (min(xs), max(xs)) if xs else (loose.low, loose.high)
    # One value, or as good as one: an axis from it to itself has no length.
    if not high - low > (loose.high - loose.low) * 1e-6:
        return loose
    # Marks at the very ends stay, though they are computed by other sums.
    slack = (high - low) * 1e-9
    ticks = tuple((value, label) for value, label in loose.ticks if low - slack <= value <= high + slack)
    return Scale(low=low, high=high, ticks=ticks, place=lambda value: (value - low) / (high - low))


def _axes(frame: _Frame, axes: Axes) -> list[str]:
    parts = []
    for value, label in frame.y.ticks:
        y = frame.bottom - frame.y.place(value) * (frame.bottom - frame.top)
        parts.append(_rule(frame.left, y, frame.right, y, 0.15))
        parts.append(_text(label, frame.left - 6, y + FONT / 3, "end"))
    for value, label in frame.x.ticks:
        x = frame.left + frame.x.place(value) * (frame.right - frame.left)
        parts.append(_rule(x, frame.bottom, x, frame.bottom + 4, 0.5))
        parts.append(_text(label, x, frame.bottom + LINE, _anchor(x, label, axes.width)))
    parts.append(_rule(frame.left, frame.bottom, frame.right, frame.bottom, 0.5))
    if axes.x:
        parts.append(_text(axes.x, frame.right, axes.height - MARGIN / 2, "end"))
    return parts


def _anchor(x: float, label: str, width: float) -> str:
    """Return on which side of its mark a label stands: at the edge, within the chart."""
    return "end" if x + text_width(label, FONT) / 2 > width else "middle"


def _legend(curves: list[_Curve], axes: Axes) -> tuple[list[str], float]:
    """Return title and legend, and how much room they take from the top."""
    parts, y = [], MARGIN
    if axes.title:
        title = _cut(axes.title, axes.width - 2 * MARGIN)
        parts.append(_text(title, MARGIN, y + FONT, "start", ' font-weight="600"'))
        y += LINE
    x = MARGIN
    for curve in curves[:MOST_NAMED]:
        name = _cut(curve.series.name, (axes.width - 2 * MARGIN) / 2 - MARK)
        width = MARK + text_width(name, FONT) + LINE
        # A name that is too long for any line gets one of its own all the same.
        if x > MARGIN and x + width > axes.width:
            x, y = MARGIN, y + LINE
        dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
        parts.append(
            f'<line x1="{x:.1f}" x2="{x + MARK - 4:.1f}" y1="{y + FONT * 0.65:.1f}" y2="{y + FONT * 0.65:.1f}" '
            f'stroke="{curve.color}" stroke-width="3"{dash}/>'
        )
        parts.append(_text(name, x + MARK, y + FONT, "start"))
        x += width
    if len(curves) > MOST_NAMED:
        y = y + LINE if x + 6 * LINE > axes.width else y
        x = MARGIN if x + 6 * LINE > axes.width else x
        parts.append(_text(f"and {len(curves) - MOST_NAMED} more", x, y + FONT, "start"))
    y += LINE if curves else 0
    if axes.y:
        parts.append(_text(_cut(axes.y, axes.width / 2), MARGIN, y + FONT, "start", ' opacity="0.75"'))
        y += LINE
    return parts, y + MARGIN / 2


def _cut(text: str, width: float) -> str:
    """Return a text that fits, without its middle: jobs' names differ at their ends."""
    text = CONTROL.sub("", text)
    if text_width(text, FONT) <= width:
        return text
    # The middle is left out: names of jobs are alike at their beginning, and differ at their end.
    half = max(1, len(text) // 2)
    while half > 1 and text_width(text[:half] + "…" + text[-half:], FONT) > width:
        half -= 1
    return text[:half] + "…" + text[-half:]


def _rule(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        f'stroke-opacity="{opacity:g}"/>'
    )


def _text(text: str, x: float, y: float, anchor: str, look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    return html.escape(CONTROL.sub("", text), quote=True)
