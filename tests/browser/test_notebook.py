"""examples/notebook.ipynb in JupyterLab in a real browser; each output is looked at by a test with a kernel alone."""

import json
import shutil

import pytest

from raysm.client.job.handle import token_of
from raysm.client.job.listing import find_job
from raysm.client.service import connect
from tests.support.browsers import looking
from tests.support.jupyter import KERNEL, WAIT_MS
from tests.test_notebook import EXAMPLES, NOTEBOOK

expect = pytest.importorskip("playwright.sync_api").expect
nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser


@pytest.fixture
def path(lab):
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    # But for the sweep: what it shows is in that test too, and its picture in test_sweep_picture.
    cells = [cell for cell in cells if "raysm.Sweep(" not in cell.source and "found.best" not in cell.source]
    path = lab.write("digits", cells, KERNEL)
    shutil.copytree(EXAMPLES / "data", path.parent / "data")
    return path


@pytest.mark.timeout(900)
def test_the_notebook_of_the_digits_runs_in_jupyterlab_with_dashboard_and_table(browser, lab, path):
    sources = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    shown, table, last = (sources.index(text) for text in ("%raysm dashboard", "raysm.jobs()", "%raysm close"))
    with looking(browser) as (context, seen):
        page = context.new_page()
        notebook = lab.open(page, path).begin()
        notebook.run(last)
        notebook.ran(table)
        token = token_of(find_job("digits-notebook", connect(None)))
        page.locator(".jp-OutputArea iframe").scroll_into_view_if_needed()
        expect(notebook.output(shown).frame_locator("iframe").get_by_text("Recent jobs")).to_be_visible(timeout=WAIT_MS)
        expect(notebook.output(table).get_by_text("digits-notebook").first).to_be_visible()
        notebook.run()
        expect(notebook.output(last)).to_contain_text("the session digits-notebook is closed", timeout=WAIT_MS)
        saved = notebook.save("the session digits-notebook is closed")
        seen.errors.clear()
    outputs = [output for cell in json.loads(saved)["cells"] for output in cell.get("outputs", [])]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert "of the ten nearest neighbors are the same digit" in saved
    assert token not in saved
