"""All runs in MLflow's pages, and the table of jobs, in a real browser."""

import os
import re
from dataclasses import replace

import pytest

from raysm.core.client.submit import submit
from raysm.core.protocol.events import Metric, line
from raysm.features.experiments.table import Jobs, jobs
from raysm.features.experiments.ui_command import MlflowStore, open_mlflow, records
from raysm.features.script.request import Script
from raysm.testing import Answer

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]

HOSTILE = "<script>document.title = 'taken'</script>"


@pytest.fixture
def run(fake, script):
    """Return a function that runs a job whose loss falls, or grows, by a factor a step."""

    def run(lr, batch, factor, status="Completed"):
        lines = [
            line(
                Metric(
                    name="loss",
                    value=2 * factor**step + 0.1,
                    step=step,
                    time_s=1_800_000_000.0 + 7 * step,
                )
            )
            for step in range(20)
        ]
        fake.answer("script", Answer(lines=lines, status=status))
        submit(
            Script(str(script), args=["--lr", lr, "--batch", batch, "--seed", 1]),
            on=fake,
            project="digits",
        )
        return jobs(project="digits", on=fake)

    return run


@pytest.fixture
def table(run):
    """Three jobs: two that went well, the second one better, and one that failed; as if each had run on AWS."""
    run(0.1, 32, 0.9)
    run(0.03, 64, 0.8)
    took_s, usd = iter((95.0, 610.0, 584.0)), iter((0.04, 0.26, 0.25))
    rows = run(0.3, 64, 1.02, "Failed")
    billed = [
        replace(row, is_billed=True, started_s=row.ended_s - next(took_s), cost_usd=next(usd))
        for row in rows
    ]
    return Jobs(billed, rows._service)


def test_mlflow_shows_curves_of_several_runs_in_one_chart(looked, run, table, tmp_path, picture):
    context, seen = looked
    rows = run(HOSTILE, 64, 0.95)
    store = MlflowStore(tmp_path / "mlflow")
    assert store.update(records(rows._service)) == 4
    page = context.new_page()
    page.set_viewport_size({"width": 1400, "height": 800})
    with open_mlflow(store) as url:
        page.goto(f"{url}#/experiments/1/runs?compareRunsMode=CHART")
        for row in rows:
            expect(page.get_by_text(row.name).first).to_be_visible()
        expect(page.locator(".js-plotly-plot .scatterlayer .js-line")).not_to_have_count(0)
        # Its assistant takes a quarter of the page, where it is open.
        close = page.get_by_role("button", name="Close")
        if close.count():
            close.first.click()
        picture(page, "mlflow", later_s=3)
        page.get_by_text(rows[0].name).first.click()
        command = page.get_by_text(f"raysm logs {rows[0].name}").first
        given_up = page.get_by_role("heading", name="Something went wrong")
        for _ in range(3):
            expect(command.or_(given_up).first).to_be_visible()
            if not given_up.count():
                break
            # MLflow's page gives up if a part of it comes late, as on a machine with other work.
            page.reload()
        expect(command).to_be_visible()
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        if folder := os.environ.get("RAYSM_PICTURES"):
            page.screenshot(path=f"{folder}/mlflow-run.png")
        assert page.title() != "taken"
        outside = [one for one in seen.urls if not re.match(rf"{re.escape(url)}|data:|blob:", one)]
        assert outside == []
        seen.errors.clear()
