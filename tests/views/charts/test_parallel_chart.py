"""Parallel coordinates."""

import re
import xml.etree.ElementTree as ET

import pytest

from raysm.views.charts.parallel_chart import MOST_LINES, Trace, axis_of, parallel_chart

SVG = "{http://www.w3.org/2000/svg}"


def chart(rows, names=("lr", "kind")):
    axes = [axis_of(name, [row[name] for row in rows]) for name in names]
    return ET.fromstring(parallel_chart(axes, [Trace(name=str(n), values=row) for n, row in enumerate(rows)]))


def test_a_line_a_trial_the_best_one_last_and_in_a_color_of_its_own():
    root = chart([{"lr": 0.1, "kind": "a"}, {"lr": 0.2, "kind": "b"}, {"lr": 0.3, "kind": "a"}])
    lines = root.findall(f"{SVG}polyline")
    assert [line.find(f"{SVG}title").text for line in lines] == ["2", "1", "0"]
    assert [line.get("stroke") for line in lines] == ["#0072b2", "#0072b2", "#d55e00"]
    assert all(len(line.get("points").split()) == 2 for line in lines)


def test_what_users_wrote_is_text():
    text = parallel_chart([axis_of("<i>", ["<b>", "&"])], [Trace(name="</svg>", values={"<i>": "<b>"})])
    assert "<b>" not in text
    assert text.count("</svg>") == 1
    ET.fromstring(text)


def test_numbers_far_apart_lie_on_a_logarithms_scale():
    axis = axis_of("lr", [1e-4, 1e-2, 1.0])
    assert axis.places == pytest.approx({1e-4: 0.0, 1e-2: 0.5, 1.0: 1.0})
    assert [label for _, label in axis.ticks] == ["0.0001", "0.01", "1"]
    assert axis_of("n", [1, 2, 5]).places == pytest.approx({1: 0.0, 2: 0.25, 5: 1.0})


def test_of_two_choices_nothing_between_them_is_marked():
    assert axis_of("batch", [64, 32, 64]).ticks == ((0.0, "32"), (1.0, "64"))
    assert axis_of("batch", [32]).ticks == ((0.5, "32"),)


def test_one_value_and_texts_have_places_of_their_own():
    assert axis_of("n", [3, 3]).places == {3: 0.5}
    places = axis_of("kind", ["b", None, "a"]).places
    assert [places[value] for value in (None, "a", "b")] == pytest.approx([1 / 6, 1 / 2, 5 / 6])


def test_a_trial_without_a_parameter_passes_its_axis_over():
    axes = [axis_of("a", [1, 2]), axis_of("b", [1, 2])]
    text = parallel_chart(axes, [Trace(name="one", values={"b": 1})])
    assert len(re.search(r'points="([^"]*)"', text)[1].split()) == 1


def test_of_thousands_the_best_are_drawn_and_without_any_it_says_so():
    rows = [{"lr": float(n), "kind": "a"} for n in range(MOST_LINES + 50)]
    assert len(chart(rows).findall(f"{SVG}polyline")) == MOST_LINES
    assert "no trials with a value" in parallel_chart([], [])


def test_labels_stand_where_no_line_goes():
    rows = [{"lr": lr, "batch": batch} for lr, batch in ((0.001, 32), (0.002, 64), (0.003, 32))]
    root = chart(rows, ("lr", "batch"))
    lines = [[tuple(map(float, at.split(","))) for at in line.get("points").split()] for line in root[:3]]
    xs, ys = ([point[axis] for points in lines for point in points] for axis in (0, 1))
    for text in root.findall(f"{SVG}text"):
        x, y = float(text.get("x")), float(text.get("y"))
        is_left = text.get("text-anchor") == "end" and x < min(xs)
        assert is_left or y < min(ys) or y - 8 > max(ys), text.text
