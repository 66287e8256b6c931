"""Curves as SVG."""

import math
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from raysm.views.charts.line_chart import Axes, line_chart
from raysm.views.charts.scale import text_width
from raysm.views.charts.series import Series

SVG = "{http://www.w3.org/2000/svg}"
FONT = 11


def drawn(*series, **axes):
    return ElementTree.fromstring(line_chart(series, Axes(**axes)))


def texts(svg):
    return [text.text for text in svg.iter(f"{SVG}text")]


def boxes(svg):
    """Yield left, right and baseline of each text."""
    for text in svg.iter(f"{SVG}text"):
        width, x = text_width(text.text, FONT), float(text.get("x"))
        left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor")]
        yield left, left + width, float(text.get("y"))


def falling(count=100, name="loss"):
    return Series(name=name, points=[(step, 1 / (step + 1)) for step in range(count)])


def test_a_curve_is_drawn_with_its_axes_and_its_name():
    svg = drawn(falling(11), title="digits-1", x="step", y="loss")
    assert {"digits-1", "step", "loss", "0", "10", "0.0", "1.0"} <= set(texts(svg))
    (path,) = svg.iter(f"{SVG}path")
    assert path.get("d").count("L") == 10
    assert path.find(f"{SVG}title").text == "loss"


def test_steps_are_marked_by_whole_numbers():
    for count in range(2, 60):
        steps = Series(name="", points=[(step, 1_000 * step) for step in range(count)])
        assert not [text for text in texts(drawn(steps, width=760)) if "." in text and "k" not in text]


def test_a_curve_alone_under_its_own_name_is_named_once():
    assert texts(drawn(falling(11), title="loss")).count("loss") == 1
    two = drawn(falling(11), falling(11, name="other"), title="both")
    assert {"loss", "other", "both"} <= set(texts(two))


def test_the_lowest_value_lies_lowest_and_the_first_leftmost():
    svg = drawn(Series(name="", points=[(0, 5), (1, 1), (2, 3)]))
    (path,) = svg.iter(f"{SVG}path")
    points = [tuple(map(float, point.split(","))) for point in re.findall(r"[ML]([\d.,]+)", path.get("d"))]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x0 < x1 < x2
    assert y0 < y2 < y1


def test_without_values_it_says_so():
    assert "no values" in texts(drawn())
    assert "no values" in texts(drawn(Series(name="loss", points=[(0, math.nan)])))


def test_a_gap_parts_a_curve_and_a_single_point_is_seen():
    svg = drawn(Series(name="loss", points=[(0, 1), (1, 2), (2, math.nan), (3, 1), (4, math.inf), (5, 2), (6, 2)]))
    assert len(list(svg.iter(f"{SVG}path"))) == 2
    assert len(list(svg.iter(f"{SVG}circle"))) == 1


def test_steps_hold_a_value_and_dots_join_nothing():
    points = [(0, 3), (1, 2), (2, 1)]
    (path,) = drawn(Series(name="best", points=points, style="steps")).iter(f"{SVG}path")
    assert (path.get("d").count("H"), path.get("d").count("V")) == (2, 2)
    dots = drawn(Series(name="trials", points=points, style="dots"))
    assert len(list(dots.iter(f"{SVG}circle"))) == 3
    assert not list(dots.iter(f"{SVG}path"))


def test_on_a_logarithmic_axis_what_is_not_above_zero_is_a_gap():
    svg = drawn(Series(name="loss", points=[(0, 100), (1, 1), (2, 0), (3, -1), (4, 1e-3), (5, 1e-2)]), is_log=True)
    assert len(list(svg.iter(f"{SVG}path"))) == 2
    assert {"0.001", "1", "100"} <= set(texts(svg))


def test_steps_of_a_training_have_no_halves():
    assert [text for text in texts(drawn(falling(3))) if "." not in text][-4:] == ["0", "1", "2", "loss"]


def test_curves_differ_in_color_and_beyond_the_last_color_in_their_dashes():
    svg = drawn(*(falling(name=f"job-{number}") for number in range(20)))
    looks = [(path.get("stroke"), path.get("stroke-dasharray")) for path in svg.iter(f"{SVG}path")]
    assert len(set(looks)) == 20
    assert "and 8 more" in texts(svg)


def test_no_text_overlaps_another_nor_leaves_the_chart():
    long = [falling(name=f"digits-with-a-long-name-20260102-0304{number:02}-abcd{number}ef0") for number in range(9)]
    for width in (240, 420, 640, 1000):
        svg = drawn(*long, title="loss of all that ran " * 3, x="step", y="loss", width=width, height=420)
        placed = sorted(boxes(svg), key=lambda box: (box[2], box[0]))
        assert all(left >= -1 and right <= width + 1 for left, right, _ in placed)
        for (_, right, y), (left, _, other) in zip(placed, placed[1:], strict=False):
            assert y != other or right <= left, (right, left, y, width)


def test_a_hostile_name_is_text():
    name = '</svg><script>alert(1)</script>"\x1b[31m&\ud800'
    text = line_chart([falling(name=name)], Axes(title=name, x=name, y=name))
    assert "<script" not in text
    assert text.count("</svg>") == 1
    assert "\x1b" not in text
    svg = ElementTree.fromstring(text)
    assert "<script>" in svg.get("aria-label")
    assert any(path.find(f"{SVG}title").text.startswith("</svg><script>") for path in svg.iter(f"{SVG}path"))


def test_it_changes_nothing_of_the_page():
    text = line_chart([falling()])
    assert not re.search(r"<style|<script|href|url\(| id=| class=", text)
    # The text around it says which color it has: dark on light pages, light on dark ones.
    assert 'fill="currentColor"' in text


def test_a_curve_of_a_million_points_is_small():
    points = [(step, math.sin(step / 1000)) for step in range(200_000)]
    assert len(line_chart([Series(name="loss", points=points)])) < 12_000


@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=30),
    st.text(max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_whatever_it_is_given_it_is_one_whole_element(points, name, is_time, is_log):
    svg = drawn(Series(name=name, points=points), title=name, is_time=is_time, is_log=is_log)
    for path in svg.iter(f"{SVG}path"):
        assert not re.search("nan|inf", path.get("d"))


def test_an_axis_from_zero_shows_zero_and_nothing_below():
    two = [Series(name="nodes", points=[(0.0, 2.0), (1.0, 2.0)])]
    assert "0.0" not in texts(drawn(*two))
    shown = [text for text in texts(drawn(*two, from_zero=True)) if re.fullmatch(r"-?[\d.]+", text)]
    assert "2.0" in shown
    assert min(map(float, shown)) == 0
    nothing = [Series(name="bytes", points=[(0.0, 0.0), (1.0, 0.0)])]
    assert not any(text.startswith("-") for text in texts(drawn(*nothing, from_zero=True)))
