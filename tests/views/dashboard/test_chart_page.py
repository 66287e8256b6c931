"""The page of charts."""

from xml.etree import ElementTree

import pytest

from raysm.views.dashboard.chart_page import chart_page, charts_of
from raysm.views.dashboard.panels import Chart

LOSS = Chart(title="loss", unit="", curves={"loss": [(100.0, 3.0), (160.0, 1.0)]})
HOSTILE = Chart(title="<script>alert(1)</script>", unit="</svg>", curves={"<img src=x>": [(0.0, 1.0)]})


def page(charts=(LOSS,), theme="light", is_solo=False):
    return chart_page(charts, title="digits-1", theme=theme, is_solo=is_solo)


def test_each_chart_is_a_figure_with_its_title():
    assert charts_of([LOSS, LOSS], is_solo=False).count("<figcaption>loss</figcaption>") == 2


def test_a_chart_is_well_formed():
    (figure,) = ElementTree.fromstring(f"<div>{charts_of([LOSS], is_solo=True)}</div>")
    assert [child.tag for child in figure] == ["figcaption", "{http://www.w3.org/2000/svg}svg"]


def test_what_a_workload_calls_its_metrics_is_text_and_nothing_else():
    text = page([HOSTILE])
    assert "<script>alert" not in text
    assert "<img" not in text
    assert text.count("</svg>") == text.count("<svg")


def test_without_values_it_says_that_they_come():
    assert "No values yet" in page([])
    assert "No values yet" in page([Chart(title="CPU", unit="%", curves={})])


@pytest.mark.parametrize(("theme", "color"), [("light", "#fff"), ("dark", "#1c2025"), ("nonsense", "#fff")])
def test_it_has_the_theme_of_rays_page(theme, color):
    assert f"background: {color}" in page(theme=theme)


def test_a_small_frame_has_its_chart_alone():
    assert "<nav>" in page()
    assert "<nav>" not in page(is_solo=True)


def test_it_needs_nothing_from_anywhere_else():
    text = page().replace("http://www.w3.org/2000/svg", "")
    assert "http" not in text
    assert "src=" not in text


def test_time_counts_from_the_first_value():
    assert ">0 s<" in charts_of([LOSS], is_solo=False)
