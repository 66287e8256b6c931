"""A small line chart as one SVG element, for cards and reports without scripts and other files."""

import html
import itertools
import math
import re
from collections.abc import Sequence

from raysm.core.client.job.experiment import thinned
from raysm.core.client.logs.rendering import marked_value, metric_value

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

COLOR = "#1f83c9"
MAX_POINTS = 400


def plain(text: str) -> str:
    """Return ``text`` without control characters, except line breaks and tabs.

    HTML and XML forbid them.

    Marks that override the direction of text go too, since they change what is read and not what is
    there.
    """
    return CONTROL.sub("", text)


def thin(points: list[tuple[float, float]], max_points: int) -> None:
    """Thin a curve evenly along x if it has too many points; the first and the last one stay."""
    if len(points) > max_points:
        first_x = points[0][0]
        last = points[-1]
        # Not every second point: old ones would be halved again and again, and soon be gone.
        width = 2 * (last[0] - first_x) / max_points or 1.0
        kept = {int((x - first_x) / width): (x, y) for x, y in reversed(points[:-1])}
        points[:] = [*sorted(kept.values()), last]


def _is_drawn(point: tuple[int | None, float, float]) -> bool:
    return math.isfinite(point[2])


def sparkline(
    points: Sequence[tuple[float, float]],
    title: str,
    *,
    width: int = 320,
    height: int = 80,
    note: str = "",
) -> str:
    """Return the SVG of a curve with its title, last value, and lowest and highest value.

    The lowest and highest value are at the left.

    It has no style sheet, link or id, so it does not change the page. It has the text color of the
    page, and shrinks if there is less room than ``width``. ``points`` are (x, y) in the order of x;
    the line breaks where y is not finite. ``note`` is right of the title.
    """
    kept = thinned([(None, x, y) for x, y in points if math.isfinite(x)], MAX_POINTS)
    pieces = [list(piece) for is_drawn, piece in itertools.groupby(kept, _is_drawn) if is_drawn]
    drawn = [(x, y) for piece in pieces for _, x, y in piece]
    if not drawn:
        return ""
    left = 64
    top = 22
    first_x = drawn[0][0]
    last_x = drawn[-1][0]
    ys = [y for _, y in drawn]
    low = min(ys)
    high = max(ys)

    def place(x: float, y: float) -> str:
        # Halved first, because the difference could overflow.
        across = (x - first_x) / ((last_x - first_x) or 1.0)
        up = (y / 2 - low / 2) / ((high / 2 - low / 2) or 1.0) if high > low else 0.5
        return f"{left + across * (width - left - 6):.1f},{top + (1 - up) * height:.1f}"

    def draw(piece: list[tuple[int | None, float, float]]) -> str:
        corners = [place(x, y) for _, x, y in piece]
        if len(corners) == 1:
            x, _, y = corners[0].partition(",")
            return f'<circle cx="{x}" cy="{y}" r="2.5" fill="{COLOR}"/>'
        line = " ".join(corners)
        return (
            f'<polyline points="{line}" fill="none" stroke="{COLOR}" stroke-width="1.6" '
            'stroke-linejoin="round"/>'
        )

    curve = "".join(map(draw, pieces))
    label = html.escape(plain(title))
    shown = html.escape(marked_value(kept[-1][2]))
    texts = [
        f'<text x="{left}" y="13">{label}: <tspan font-weight="600">{shown}</tspan></text>',
        (
            f'<text x="{left - 6}" y="{top + 8}" text-anchor="end" '
            f'opacity="0.75">{metric_value(high)}</text>'
        ),
    ]
    if high > low:
        texts.append(
            f'<text x="{left - 6}" y="{top + height}" text-anchor="end" '
            f'opacity="0.75">{metric_value(low)}</text>'
        )
    if note:
        texts.append(
            f'<text x="{width - 6}" y="13" text-anchor="end" opacity="0.75">{html.escape(note)}'
            "</text>"
        )
    total = top + height + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'viewBox="0 0 {width} {total}" width="{width}" height="{total}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="currentColor" '
        f'style="max-width:100%">{"".join(texts)}'
        f'<path d="M{left},{top + height + 1}H{width - 6}" stroke="currentColor" '
        f'opacity="0.3"/>{curve}</svg>'
    )
