"""The live card of a job in real notebooks in a real browser: JupyterLab and marimo."""

import json

import pytest

from tests.support.browsers import looking
from tests.support.marimos import START_S, serving_marimo, watching_notebook
from tests.support.watched_jobs import BEGIN, END, HOSTILE, TELL

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

CARD = "as of"
"""A text that every card has."""

RENAMED = """([before, after]) => document.querySelectorAll(".jp-Notebook .jp-OutputArea-output").forEach(output => {
    const texts = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.nodeValue = texts.currentNode.nodeValue.replaceAll(before, after);
})"""

GONE = {"kernelspec": {"name": "gone", "display_name": "gone", "language": "python"}}
"""A kernel that there is not: nobody runs anything."""


def looks_right(card):
    """Wait until a card shows what was told, hostile lines as text."""
    expect(card.get_by_text("2 of 2 joined")).to_be_visible()
    expect(card.get_by_text("<script>document.title = 'taken'</script>")).to_be_visible()
    expect(card.get_by_text("red", exact=False).last).to_be_visible()
    expect(card.locator("svg").first).to_be_visible()
    assert "\x1b" not in card.inner_text()


def test_in_jupyterlab_a_card_goes_on_in_its_own_cell_and_is_readable_without_a_kernel(
    browser, lab, picture
):
    with looking(browser) as (context, seen):
        page = context.new_page()
        notebook = lab.open(
            page, lab.write("watch", [BEGIN, "watching = job.watch()", TELL, END])
        ).begin()
        card = notebook.output(1)
        notebook.run(2)
        expect(card.get_by_text(CARD)).to_be_visible()
        notebook.run()
        looks_right(card)
        assert page.title() != "taken"
        assert card.locator("script").count() == 0
        # Where this machine keeps its tests belongs into no documentation, nor does what only a
        # test says.
        page.evaluate(RENAMED, [str(notebook.path.parent / "home"), "~/.raysm"])
        page.evaluate(RENAMED, [f"{HOSTILE}red", "epoch 14 is done"])
        picture(card, "card")
        notebook.run()
        expect(card.get_by_text("Completed").first).to_be_visible()
        saved = json.loads(notebook.save("Completed"))
        # What counts is that nothing was asked of anybody else; JupyterLab's page may report what
        # it lacks.
        seen.errors.clear()
    again = lab.write("again", [])
    again.write_text(json.dumps(saved | {"metadata": GONE}))
    with looking(browser) as (context, seen):
        page = context.new_page()
        card = lab.open(page, again).output(1)
        looks_right(card)
        expect(card.get_by_text("Completed").first).to_be_visible()
        seen.errors.clear()


def test_in_marimo_a_card_goes_on_too(browser, tmp_path):
    with (
        serving_marimo(watching_notebook(tmp_path, BEGIN, TELL)) as url,
        looking(browser) as (context, seen),
    ):
        page = context.new_page()
        page.goto(url)
        # The one output of the page: each card is in the place of the one before. Its kernel begins
        # only now, and imports everything once more: on a machine with much other work that takes
        # longer than a page may take.
        expect(page.get_by_text(CARD)).to_have_count(1, timeout=2000 * START_S)
        looks_right(page.locator("body"))
        expect(page.get_by_text(CARD)).to_have_count(1)
        assert page.title() != "taken"
        seen.errors.clear()
