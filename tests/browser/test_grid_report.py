"""The report of a grid in a real browser: both themes, a dozen rows and a thousand."""

import pytest

from tests.support.browsers import looking
from tests.support.campaigns import ended, page_of

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser

LUMINANCE = """element => {
    const color = getComputedStyle(element).color.match(/[0-9.]+/g).map(Number);
    return 0.2126 * color[0] + 0.7152 * color[1] + 0.0722 * color[2];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_dozen_rows_are_one_page_in_both_themes(browser, tmp_path, picture, theme):
    path = tmp_path / "grid.html"
    path.write_text(page_of(ended(tmp_path)), encoding="utf-8")
    with looking(browser, color_scheme=theme) as (context, _):
        page = context.new_page()
        page.goto(path.as_uri())
        for text in (
            "11 of 12",
            "images/s at most",
            "planned",
            "wasted",
            "saved by spot",
            "eu-central-1",
        ):
            expect(page.get_by_text(text).first).to_be_visible()
        expect(page.get_by_text("'0,05' <b>").first).to_be_visible()
        expect(page.locator("svg")).to_have_count(2)
        # What is written is read: dark on light, and light on dark; the axes of the curves, too.
        for place in ("h1", "td", "svg text"):
            bright = page.locator(place).first.evaluate(
                LUMINANCE if place != "svg text" else _fill(LUMINANCE)
            )
            assert (bright > 128) == (theme == "dark"), (place, bright)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        picture(page, "grid-report" if theme == "light" else "grid-report-dark")


def _fill(script):
    return script.replace(".color.match", ".fill.match")


def test_on_a_phone_nothing_is_cut_off(browser, tmp_path):
    path = tmp_path / "grid.html"
    path.write_text(page_of(ended(tmp_path, midway=True)), encoding="utf-8")
    with looking(browser) as (context, _):
        page = context.new_page()
        page.set_viewport_size({"width": 400, "height": 800})
        page.goto(path.as_uri())
        expect(page.get_by_text("images/s now")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
