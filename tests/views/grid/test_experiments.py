"""The rows of a grid in the table of experiments."""

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.grid.store import path_of
from raysm.views.grid.experiments import experiments_of
from tests.support.campaigns import ended
from tests.support.homes import in_home


@pytest.fixture
def bench(tmp_path):
    with in_home(tmp_path):
        folder = path_of("g").parent
        folder.mkdir(parents=True)
        bench = ended(folder)
        yield bench
        bench.store.close()


def test_each_row_has_its_last_job_with_its_place_its_rate_and_its_dollars(bench):
    rows = {row.task: row for row in experiments_of(bench.store)}
    assert len(rows) == 12
    first = rows["campaign-000"]
    assert (first.status, first.parameters["region"]) == ("Completed", "us-east-1")
    assert first.instances == (("ml.p4d.24xlarge", 1),)
    assert first.metrics["images_per_s"].last == 6_000.0
    books = sum(region.usd() for region in bench.regions.values())
    assert sum(row.cost_usd for row in rows.values()) == pytest.approx(books)
    assert first.duration_s > 0


def test_what_failed_says_why_and_which_row_it_was(bench):
    (failed,) = [row for row in experiments_of(bench.store) if row.status == "Failed"]
    assert failed.parameters["row"] == "campaign-006"
    assert "could not convert string" in failed.message
    assert failed.name.endswith("-a2")


def test_the_table_of_experiments_knows_grids_and_sorts_and_filters_them(bench):
    jobs = raysm.jobs(grid="g")
    assert [row.cost_usd for row in jobs.sorted_by("-cost_usd")] == sorted((row.cost_usd for row in jobs), reverse=True)
    assert [row.task for row in raysm.jobs(grid="g", status="failed")] == ["campaign-006"]
    assert len(raysm.jobs(grid="g", limit=5)) == 5
    assert "us-west-2" in jobs._repr_html_()


def test_rows_that_were_never_sent_are_no_jobs(tmp_path):
    bench = ended(tmp_path, midway=True)
    jobs = experiments_of(bench.store)
    assert len(jobs) == sum(bool(each.attempts) for each in bench.store.tasks())
    assert {"Completed", "InProgress"} <= {row.status for row in jobs}
    assert all(row.name for row in jobs)
    bench.store.close()


def test_a_grid_that_there_is_not_is_said(bench):
    with pytest.raises(InvalidRequest, match="there is no grid 'h' .* there are g"):
        raysm.jobs(grid="h")
