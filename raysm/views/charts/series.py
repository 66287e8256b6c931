"""The curves of a chart, and how many of their points are drawn. Pure: points flow in, fewer points flow out.

A loss of a million steps has to fit into a notebook: of each stretch of a curve its first, lowest, highest and last
point stay, so that no peak is lost.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

__all__ = ["Point", "Series", "segments", "thinned"]

Point: TypeAlias = tuple[float, float]
"""x and y; a y that is not finite is a gap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One curve."""

    name: str
    """In the legend; any text."""
    points: Sequence[Point]
    """In the order in which they are joined."""
    style: Literal["line", "steps", "dots"] = "line"
    """``steps`` holds each value until the next one; ``dots`` joins nothing."""


def segments(points: Iterable[Point]) -> Iterator[list[Point]]:
    """Yield the stretches of a curve between its gaps."""
    for is_there, stretch in groupby(points, key=lambda point: math.isfinite(point[0]) and math.isfinite(point[1])):
        if is_there:
            yield list(stretch)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most about ``most`` of the points, of each stretch the first, lowest, highest and last.

    Args:
        points: Without gaps.
        most: At least 4.
    """
    # Most curves are short, and are drawn as they are.
    if len(points) <= most:
        return list(points)
    # Four of each: first and last, so that the curve goes on, lowest and highest, so that no peak is lost.
    buckets = max(1, most // 4)
    return [
        point
        for number in range(buckets)
        for point in _extremes(points, number * len(points) // buckets, (number + 1) * len(points) // buckets)
    ]


def _extremes(points: Sequence[Point], begin: int, end: int) -> list[Point]:
    inner = range(begin, end)
    lowest = min(inner, key=lambda index: points[index][1])
    highest = max(inner, key=lambda index: points[index][1])
    # A set, in the order of the curve: one point may be two of them.
    return [points[index] for index in sorted({begin, lowest, highest, end - 1})]
