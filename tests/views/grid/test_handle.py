"""The handle on a grid that there is, in another process than the one that runs it."""

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.grid.store import Store, path_of
from raysm.grid.task import Rules, Task, TaskState
from raysm.views.grid.handle import attach_grid, experiments_of
from tests.support.campaigns import ended
from tests.support.homes import in_home
from tests.support.memory_folder import memory_folder


@pytest.fixture(scope="module")
def bench():
    with memory_folder() as home, in_home(home):
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


def test_the_table_of_experiments_knows_grids_and_sorts_and_filters_them(bench):
    jobs = raysm.jobs(grid="g")
    assert [row.cost_usd for row in jobs.sorted_by("-cost_usd")] == sorted((row.cost_usd for row in jobs), reverse=True)
    assert [row.task for row in raysm.jobs(grid="g", status="failed")] == ["campaign-006"]
    assert len(raysm.jobs(grid="g", limit=5)) == 5
    assert "us-west-2" in jobs._repr_html_()


@pytest.fixture
def store(tmp_path):
    with in_home(tmp_path):
        path_of("drives").parent.mkdir(parents=True)
        store = Store(path_of("drives"))
        store.make("drives", rules=Rules(), now=0.0)
        store.add([Task(key=key, position=place) for place, key in enumerate("abc")])
        with store.database.transaction("test", fenced=False):
            store.move_task("a", TaskState.WAITING, TaskState.DONE, 1.0)
            store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="exit code: 1 & <b>")
        yield store
        store.database.close()


def test_its_rows_and_its_state_are_what_the_store_has(store):
    grid = attach_grid("drives")
    assert [(row.key, row.state) for row in grid.rows()] == [("a", "done"), ("b", "failed"), ("c", "waiting")]
    assert [row.key for row in grid.rows("failed")] == ["b"]
    assert grid.status().states == {"done": 1, "failed": 1, "waiting": 1}
    with pytest.raises(InvalidRequest, match="a row's state is one of waiting"):
        grid.rows("lost")


def test_what_is_wished_is_found_by_whoever_runs_it(store):
    grid = attach_grid("drives")
    assert grid.retry() == 1
    assert store.states() == {"done": 1, "waiting": 2}
    assert grid.extend([{"key": "c"}, {"key": "d"}]) == 1
    assert grid.stop().open == 0
    assert store.grid().state == "closed"


def test_a_report_has_what_failed_first_and_markup_as_text(store, tmp_path):
    path = attach_grid("drives").report(tmp_path / "out.html")
    text = path.read_text()
    assert text.index("<td>b</td>") < text.index("<td>c</td>") < text.index("<td>a</td>")
    assert "exit code: 1 &amp; &lt;b&gt;" in text
