"""Grids whose jobs go through queues of AWS Batch over HTTP: simulated instances on a fast clock, one that runs."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.row import rows_of
from raysm.grid.row_result import row_result
from raysm.request.cluster import LOCAL_TYPE
from tests.support.batch_queues import make_service_queue
from tests.support.embedded_grids import EmbeddedGrid, embedded

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

REGIONS = ("us-east-1", "eu-west-1")

# The first is the cheaper one, and has nothing: Batch tries there again and again, and counts no attempt.
SCENARIO = """
seed = 1
speed = 200
[capacity]
start_delay_s = 60
[simulated]
run_s = 300
[market]
usd_per_hour = { "ml.g5.xlarge" = 1.5 }
[regions.us-east-1.capacity]
insufficient = 1.0
[regions.eu-west-1.market]
usd_per_hour = { "ml.g5.xlarge" = 1.6 }
"""


def queue_in(grid, region, **fields):
    batch = grid.service(grid.target.in_region(region)).client("batch")
    make_service_queue(batch, "team", **fields)
    return batch


def service_jobs(batch):
    listed = batch.list_service_jobs(jobQueue="team", filters=[{"name": "AFTER_CREATED_AT", "values": ["0"]}])
    return listed["jobSummaryList"]


def completed(grid, region):
    return [job["TrainingJobName"] for job in grid.jobs()[region] if job["TrainingJobStatus"] == "Completed"]


def test_a_queue_in_which_nothing_moves_is_left_after_its_patience_and_each_row_is_done_once_elsewhere(tmp_path):
    with embedded(tmp_path / "home", SCENARIO) as home:
        grid = EmbeddedGrid(home, REGIONS)
        stuck, moving = (queue_in(grid, region, capacity=5) for region in REGIONS)
        rows = [{"key": f"row-{number}"} for number in range(2)]
        running = grid.run(grid.request(rows, queue="team", patience_s=1200.0))
        assert running.store.states() == {"done": 2}
        attempts = running.store.attempts()
        waited = [attempt for attempt in attempts if attempt.region == "us-east-1"]
        assert {(attempt.ending, attempt.wish) for attempt in waited} == {("CAPACITY", "patience")}
        assert {(job["jobName"], job["status"]) for job in service_jobs(stuck)} == {
            (attempt.name, "FAILED") for attempt in waited
        }
        # Batch's own names, of which the grid knows each: there is no training job that no row waits for.
        done = [attempt for attempt in attempts if attempt.ending == "OK"]
        assert sorted(completed(grid, "eu-west-1")) == sorted(attempt.job_name for attempt in done)
        assert all(attempt.job_name.startswith("AWSBatch") and attempt.usd for attempt in done)
        assert {row.job for row in rows_of(running.store)} == {attempt.job_name for attempt in done}
        assert {attempt.name for attempt in done} <= {job["jobName"] for job in service_jobs(moving)}
        running.close()


def test_what_the_queues_own_limit_of_time_ends_goes_elsewhere_too(tmp_path):
    with embedded(tmp_path / "home", SCENARIO) as home:
        grid = EmbeddedGrid(home, REGIONS)
        reason = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
        limit = {"reason": reason, "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "TERMINATE"}
        queue_in(grid, "us-east-1", jobStateTimeLimitActions=[limit])
        # The other region has no queue: its jobs are sent directly, as they are without any.
        request = grid.request([{"key": "a"}], queue=["us-east-1=team"], patience_s=50_000.0)
        running = grid.run(request)
        # On a clock so fast a pause of the full place is over before the next step: it may be tried more than once.
        first, *_, second = running.store.attempts("a")
        assert (first.ending, reason in first.reason, first.wish) == ("CAPACITY", True, "")
        assert (second.ending, second.region, second.job_name) == ("OK", "eu-west-1", second.name)
        running.close()


def test_a_grid_stays_with_the_queues_that_it_was_begun_with(tmp_path):
    with embedded(tmp_path / "home", SCENARIO) as home:
        grid = EmbeddedGrid(home, REGIONS[1:])
        queue_in(grid, "eu-west-1")
        grid.run(grid.request([{"key": "a"}], queue="team")).close()
        with pytest.raises(InvalidRequest, match="another script"):
            grid.open(grid.request([{"key": "a"}]))
        with pytest.raises(InvalidRequest, match="no such thing as the queue 'none'"):
            grid.open(grid.request([{"key": "a"}], name="new", queue="none"))


def test_a_row_that_went_through_a_queue_really_runs_and_its_result_is_found(tmp_path):
    script = "import os, pathlib\npathlib.Path(os.environ['SM_MODEL_DIR'], 'out.txt').write_text('seven')\n"
    with embedded(tmp_path / "home") as home:
        grid = EmbeddedGrid(home, REGIONS[:1], kind="process", types=(LOCAL_TYPE,), script=script)
        queue_in(grid, "us-east-1")
        running = grid.run(grid.request([{"key": "a"}], queue="team", retries=0))
        assert running.store.states() == {"done": 1}, running.store.task("a").reason
        result = row_result(running.store, "a", grid.service(grid.target))
        assert (result / "out.txt").read_text() == "seven"
        running.close()
