"""The live card of a job in real notebooks in a real browser: JupyterLab and marimo."""

import pytest

from tests.support.browsers import WAIT_MS, looking
from tests.support.jupyter import serving_lab
from tests.support.marimos import serving_marimo, watching_notebook
from tests.support.watched_jobs import BEGIN, END, TELL

nbformat = pytest.importorskip("nbformat")
expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser

CARD = "as of"
"""A text that every card has."""


@pytest.fixture(autouse=True)
def patient():
    expect.set_options(timeout=WAIT_MS)


def looks_right(card):
    """Wait until a card shows what was told, hostile lines as text."""
    expect(card.get_by_text("2 of 2 joined")).to_be_visible()
    expect(card.get_by_text("<script>document.title = 'taken'</script>")).to_be_visible()
    expect(card.get_by_text("red", exact=False).last).to_be_visible()
    expect(card.locator("svg").first).to_be_visible()
    assert "\x1b" not in card.inner_text()


def test_in_jupyterlab_a_card_goes_on_in_its_own_cell_and_is_readable_without_a_kernel(browser, tmp_path, picture):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(source) for source in (BEGIN, "watching = job.watch()", TELL, END)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "watch.ipynb")
    with serving_lab(tmp_path) as lab, looking(browser) as (context, seen):
        page = context.new_page()
        page.goto(lab.url("lab/tree/watch.ipynb"))
        expect(page.get_by_text("| Idle")).to_be_visible()
        page.locator(".jp-Notebook .cm-content").first.click()
        run = page.get_by_role("button", name="Run this cell and advance")
        card = page.locator(".jp-Notebook .jp-Cell").nth(1).locator(".jp-OutputArea")
        for _ in range(2):
            run.click()
        expect(card.get_by_text(CARD)).to_be_visible()
        run.click()
        looks_right(card)
        assert page.title() != "taken"
        assert card.locator("script").count() == 0
        picture(card, "card")
        run.click()
        expect(card.get_by_text("Completed").first).to_be_visible()
        page.get_by_role("button", name="Save and create checkpoint").click()
        # The file tells when it is saved; the page does so for a moment only.
        for _ in range(WAIT_MS // 500):
            if "Completed" in (tmp_path / "watch.ipynb").read_text():
                break
            page.wait_for_timeout(500)
        # What counts is that nothing was asked of anybody else; JupyterLab's page may report what it lacks.
        seen.errors.clear()
    again = tmp_path / "again"
    again.mkdir()
    saved = nbformat.read(tmp_path / "watch.ipynb", as_version=4)
    # A kernel that there is not: nobody runs anything here.
    saved.metadata["kernelspec"] = {"name": "gone", "display_name": "gone", "language": "python"}
    nbformat.write(saved, again / "watch.ipynb")
    with serving_lab(again) as lab, looking(browser) as (context, seen):
        page = context.new_page()
        page.goto(lab.url("lab/tree/watch.ipynb"))
        card = page.locator(".jp-Notebook .jp-Cell").nth(1).locator(".jp-OutputArea")
        looks_right(card)
        expect(card.get_by_text("Completed").first).to_be_visible()
        seen.errors.clear()


def test_in_marimo_a_card_goes_on_too(browser, tmp_path):
    with serving_marimo(watching_notebook(tmp_path, BEGIN, TELL)) as url, looking(browser) as (context, seen):
        page = context.new_page()
        page.goto(url)
        # The one output of the page: each card is in the place of the one before.
        expect(page.get_by_text(CARD)).to_have_count(1)
        looks_right(page.locator("body"))
        expect(page.get_by_text(CARD)).to_have_count(1)
        assert page.title() != "taken"
        seen.errors.clear()
