"""Parallel coordinates as one SVG element: an axis a parameter, a line a trial. Pure: rows flow in, text flows out.

As ``line_chart``: no style sheet, script, link or id, and the text has the color of the text around it. The better a
trial, the stronger its line; the best one is drawn last, in a color of its own.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysm.views.charts.scale import text_width

__all__ = ["Axis", "Trace", "axis_of", "parallel_chart"]

FONT = 11.0
LINE = 16.0
"""Height of a font and of a line of text, in pixels."""

SIDE = 60.0
"""Room for the labels of the first and the last axis."""

LINE_COLOR, BEST_COLOR = "#0072b2", "#d55e00"
"""Of Okabe and Ito: told apart by the color-blind too."""

MOST_LINES = 300
"""Trials that are drawn, the best ones: of thousands nobody could follow one."""

LOG_FROM = 50.0
"""Positive values that differ by so many times lie on a logarithm's scale."""

MOST_NAMES = 8
"""Texts of one axis that are written out."""

FEW = 3
"""From so many numbers on an axis has its middle marked; between two choices there is nothing."""

LETTERS = 14
"""Of a label; the rest would run into the next axis."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One parameter, or the metric."""

    name: str
    """Above it."""
    ticks: tuple[tuple[float, str], ...]
    """Labels, each with its place: 0 at the bottom, 1 at the top."""
    places: Mapping[Any, float]
    """Where each value lies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One trial."""

    name: str
    """When one points at it."""
    values: Mapping[str, Any]
    """By the names of the axes; an axis of which it has none is passed over."""


def axis_of(name: str, values: Sequence[Any]) -> Axis:
    """Return the axis of some values: of numbers from the least to the largest, of all else one place each."""
    # Not a set: the order in which values came is the same each time.
    kinds = list(dict.fromkeys(values))
    if all(_is_number(value) for value in kinds) and len(kinds) > 1:
        return _numeric(name, sorted(kinds))
    # By their texts, since numbers and words have no order among each other.
    kinds.sort(key=str)
    places = {value: (number + 0.5) / len(kinds) for number, value in enumerate(kinds)}
    return Axis(name=name, ticks=tuple((places[value], str(value)) for value in kinds[:MOST_NAMES]), places=places)


def parallel_chart(axes: Sequence[Axis], traces: Sequence[Trace], *, size: tuple[int, int] = (640, 260)) -> str:
    """Return trials as one ``<svg>`` element, in which every name is escaped.

    Args:
        axes: From left to right.
        traces: The best first.
        size: Width and height in pixels.
    """
    width, height = size
    # Above and below there is a line of text each, over the labels of the ends the names.
    top, bottom = LINE * 2.2, height - LINE
    gap = (width - 2 * SIDE) / max(1, len(axes) - 1)
    at = {axis.name: SIDE + number * gap for number, axis in enumerate(axes)}
    # The best ones: beyond some hundreds a chart is one color.
    drawn = list(traces[:MOST_LINES])
    lines = [
        # The best last, above all others.
        _line(trace, axes, at, (top, bottom), rank, len(drawn))
        for rank, trace in reversed(list(enumerate(drawn)))
    ]
    marks = [
        mark
        for number, axis in enumerate(axes)
        for mark in _axis(axis, at[axis.name], (top, bottom), gap, is_first=number == 0)
    ]
    empty = [] if drawn else [_text("no trials with a value", width / 2, height / 2)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="trials" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="{FONT:g}" '
        f'fill="currentColor" style="max-width:100%">{"".join([*lines, *marks, *empty])}</svg>'
    )


def _numeric(name: str, values: list[float]) -> Axis:
    low, high = values[0], values[-1]
    # By the values, since the space that they were drawn from is not known here.
    is_log = low > 0 and high / low >= LOG_FROM

    def place(value: float) -> float:
        if is_log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    # Of a choice of few those alone that there are; else the middle, in the way in which the axis goes.
    middle = math.sqrt(low * high) if is_log else (low + high) / 2
    marked = values if len(values) < FEW else (low, middle, high)
    ticks = tuple((place(value), f"{value:.3g}") for value in marked)
    return Axis(name=name, ticks=ticks, places={value: place(value) for value in values})


def _line(
    trace: Trace, axes: Sequence[Axis], at: Mapping[str, float], span: tuple[float, float], rank: int, count: int
) -> str:
    top, bottom = span
    points = [
        f"{at[axis.name]:.1f},{bottom - axis.places[trace.values[axis.name]] * (bottom - top):.1f}"
        for axis in axes
        # A trial that lacks a parameter, as trials of a space that draws do, passes that axis by.
        if trace.values.get(axis.name) in axis.places
    ]
    color, thick = (BEST_COLOR, 2.2) if rank == 0 else (LINE_COLOR, 1.2)
    # Never below 0.15: the worst are still to be seen.
    opacity = 1.0 if rank == 0 else 0.75 - 0.6 * rank / count
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="{thick:g}" '
        f'stroke-opacity="{opacity:.2f}"><title>{html.escape(trace.name)}</title></polyline>'
    )


def _axis(axis: Axis, x: float, span: tuple[float, float], gap: float, *, is_first: bool) -> list[str]:
    top, bottom = span
    rule = f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="currentColor" opacity="0.5"/>'
    # Where no line goes: beyond the ends, and to the left of the first axis.
    beside = (x - 6, "end") if is_first else (x + 6, "start")
    labels = []
    for place, label in axis.ticks:
        match place:
            case 0:
                at, anchor, y = x, "middle", bottom + FONT + 2
            case 1:
                at, anchor, y = x, "middle", top - FONT / 2
            case _:
                (at, anchor), y = beside, bottom - place * (bottom - top) + FONT / 3
        labels.append(_text(_cut(label, gap), at, y, anchor, 0.8))
    return [rule, *labels, _text(_cut(axis.name, gap), x, FONT + 2, "middle")]


def _cut(text: str, width: float) -> str:
    most = max(3, min(LETTERS, int(width / text_width("x", FONT))))
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(text: str, x: float, y: float, anchor: str = "middle", opacity: float = 1.0) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" opacity="{opacity:g}">{html.escape(text)}</text>'


def _is_number(value: Any) -> bool:
    # type(), since True is an int, and is no number on an axis.
    return type(value) in (int, float) and math.isfinite(value)
