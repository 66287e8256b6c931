"""The live card of a grid in JupyterLab in a real browser, while another process runs the grid."""

import time

import pytest

from tests.support.browsers import looking
from tests.support.campaigns import ended

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

WATCH = """
import os, raysm
os.environ["RAYSM_HOME"] = os.path.abspath("home")
watching = raysm.attach_grid("g").watch()
"""

HALF_S = 2_700.0
"""Seconds that half of the rows take on the grid's own clock: the notebook looks at it by this
machine's."""


IS_WHOLE = """output => {
    const text = output.querySelector("pre");
    if (text === null) return null;
    const lines = text.clientHeight / parseFloat(getComputedStyle(text).lineHeight);
    return Math.round(lines) <= text.textContent.split("\\n").length && text.scrollWidth <= text.clientWidth;
}"""
"""Asked of what stays: each card is in the place of the one before, and one that is gone has no
size."""


def test_a_grid_that_another_process_runs_is_drawn_in_its_cell_until_it_is_over(
    browser, lab, picture
):
    path = lab.write("grid", [WATCH, "1 + 1"])
    grids = path.parent / "home" / "grids"
    grids.mkdir(parents=True)
    grid = ended(grids, midway=True, began_s=time.time() - HALF_S)
    with looking(browser) as (context, seen):
        page = context.new_page()
        notebook = lab.open(page, path).begin()
        card = notebook.output(0)
        notebook.run()
        expect(card.get_by_text("grid g: open")).to_be_visible()
        for curve in ("rows that are done", "images/s, all jobs together"):
            expect(card.get_by_role("img", name=curve)).to_be_visible()
        # Each line is one, and all of it is seen.
        while (is_whole := card.evaluate(IS_WHOLE)) is None:
            page.wait_for_timeout(50)
        assert is_whole
        picture(card, "grid-card")
        # Later cells run meanwhile.
        notebook.run()
        notebook.ran(1)
        grid.run()
        expect(card.get_by_text("grid g: closed")).to_be_visible()
        # In the place of the one before.
        expect(card.get_by_text("grid g:")).to_have_count(1)
        expect(card.get_by_text("11 done").first).to_be_visible()
        # What an error says stands there as text.
        expect(card.get_by_text("'0,05' <b>").first).to_be_visible()
        picture(card, "grid-card-closed")
        seen.errors.clear()
