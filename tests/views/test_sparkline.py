"""The small line charts of cards and reports."""

import re
from xml.etree import ElementTree

import pytest

from raysm.views.sparkline import sparkline


def texts(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_it_shows_the_title_the_last_value_and_the_range():
    svg = sparkline([(0, 1.0), (1, 3.0), (2, 2.0)], "<loss>", note="3 steps")
    assert texts(svg) == ["<loss>: 2", "3", "1", "3 steps"]
    assert "<style" not in svg
    assert "id=" not in svg


@pytest.mark.parametrize(
    "points",
    [
        [(0, 1.0)],
        [(0, 5.0), (1, 5.0)],
        [(0, -1e308), (1, 1e308)],
        [(0, float("nan")), (1, 2.0), (2, float("inf"))],
        [(float(x), float(x % 7)) for x in range(10_000)],
    ],
)
def test_every_point_lies_within_the_picture(points):
    svg = sparkline(points, "x")
    numbers = [float(number) for pair in re.findall(r"points=\"([^\"]*)\"", svg) for number in re.split(r"[ ,]", pair)]
    assert all(0 <= x <= 320 for x in numbers[::2])
    assert all(0 <= y <= 108 for y in numbers[1::2])
    assert len(svg) < 10_000


def test_without_a_value_there_is_nothing():
    assert sparkline([(0, float("nan"))], "x") == ""
