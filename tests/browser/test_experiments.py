"""The table of experiments, a comparison and curves as a notebook's page shows them."""

from dataclasses import replace

import pytest

from raysm.client.submit import submit
from raysm.contract.events import Metric, line
from raysm.request import Script
from raysm.testing import Answer, FakeSageMaker
from raysm.views.experiments.table import Jobs, jobs
from raysm.views.plots import Plot

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser

HOSTILE = "<script>document.title = 'taken'</script>"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a job whose loss falls, or grows, by a factor a step."""
    fake = FakeSageMaker(tmp_path / "home")
    script = tmp_path / "train.py"
    script.write_text("")

    def run(lr, batch, factor, status="Completed"):
        lines = [line(Metric(name="loss", value=2 * factor**step + 0.1, step=step)) for step in range(20)]
        fake.answer("script", Answer(lines=lines, status=status))
        submit(Script(str(script), args=["--lr", lr, "--batch", batch, "--seed", 1]), on=fake, project="digits")
        return jobs(project="digits", on=fake)

    return run


@pytest.fixture
def table(run):
    """Three jobs: two that went well, the second one better, and one that failed; as if each had run on AWS."""
    run(0.1, 32, 0.9)
    run(0.03, 64, 0.8)
    took_s, usd = iter((95.0, 610.0, 584.0)), iter((0.04, 0.26, 0.25))
    rows = run(0.3, 64, 1.02, "Failed")
    billed = [replace(row, is_billed=True, started_s=row.ended_s - next(took_s), cost_usd=next(usd)) for row in rows]
    return Jobs(billed, rows._service)


def show(page, *parts):
    page.set_viewport_size({"width": 1100, "height": 520})
    html = "".join(f"<div>{part.svg if isinstance(part, Plot) else part._repr_html_()}</div>" for part in parts)
    # As wide as what is in it, with a margin that its picture has too.
    look = "background:white;padding:16px;margin:0;font:14px sans-serif;width:max-content"
    page.set_content(f'<style>th {{ text-align: left }}</style><body style="{look}">{html}</body>')


def test_a_table_has_a_row_for_each_job_the_best_first_and_curves(page, table, picture):
    show(page, table.sorted_by("loss"), table.plot("loss"))
    expect(page.locator("tbody tr")).to_have_count(3)
    for text in ("lr", "batch", "loss", "took", "cost"):
        expect(page.get_by_role("columnheader", name=text, exact=True)).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("0.26 USD")
    expect(page.locator("tbody tr").first).to_contain_text("0.03")
    expect(page.locator("svg path")).not_to_have_count(0)
    picture(page.locator("body"), "experiments")


def test_whatever_a_parameter_is_it_is_text(page, run):
    show(page, run(HOSTILE, 64, 0.9))
    expect(page.get_by_text(HOSTILE)).to_be_visible()
    assert page.title() != "taken"


def test_a_comparison_has_what_differs_and_no_more(page, table):
    first, second = (row.name for row in table if row.status.value == "Completed")
    show(page, table.compare(first, second))
    for text in ("lr", "0.1", "0.03", "batch"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    expect(page.get_by_text("seed", exact=True)).to_have_count(0)
