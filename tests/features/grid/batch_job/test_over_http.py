"""A grid that a job of the embedded Batch runs: killed in its midst and started again, and stopped from the laptop."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from raysm.features.grid.batch_job.controller_job import ControllerJob, send
from raysm.features.grid.client.handle import attach_grid
from raysm.features.grid.local_grids import SentController
from raysm.features.grid.plan import make_plan
from tests.features.grid.test_over_http import books, rows_in
from tests.support.batch_queues import LOGS, define, make_queue
from tests.support.embedded_grids import TYPE, EmbeddedGrid, embedded
from tests.support.homes import in_home
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

REGIONS = ("us-east-1", "eu-west-1")
SCENARIO = (Path(__file__).parents[4] / "examples" / "four_regions.toml").read_text()
JOB = ControllerJob(job_queue="programs", job_definition="controllers")
LONG_S = 400


@contextlib.contextmanager
def account(folder, scenario):
    """Yield a grid in the regions of a server that plays AWS, as seen from a laptop that has a home of its own."""
    with embedded(folder / "aws", scenario) as home, in_home(folder / "laptop"):
        grid = EmbeddedGrid(home, REGIONS)
        make_queue(grid.service(grid.target).client("batch"))
        define(grid.service(grid.target).client("batch"), "exit 9", name="controllers")
        yield grid


@pytest.fixture
def grid(tmp_path):
    with account(tmp_path, SCENARIO) as grid:
        yield grid


def sent(grid, rows):
    return send(make_plan(grid.request(rows), grid.service), JOB, grid.service)


def job_of(grid, sent):
    return grid.service(grid.target).client("batch").describe_jobs(jobs=[sent.id])["jobs"][0]


def lines_of(grid, job):
    stream = job["attempts"][-1]["container"]["logStreamName"]
    events = (
        grid.service(grid.target)
        .client("logs")
        .get_log_events(logGroupName=LOGS, logStreamName=stream)["events"]
    )
    return [event["message"] for event in events]


def ended(grid, sent):
    until(lambda: job_of(grid, sent)["status"] in ("SUCCEEDED", "FAILED"), LONG_S)
    return job_of(grid, sent)


def controllers_of(home):
    """Return the processes that run a grid as a Batch job of a home."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        environ = process.info["environ"] or {}
        if "take-up" in (process.info["cmdline"] or []) and environ.get("RAYSM_HOME") == str(home):
            found.append(process)
    return found


def test_a_controller_that_is_killed_is_started_again_and_each_row_runs_once(grid):
    rows = rows_in(REGIONS, 12)
    batch_job = sent(grid, rows)
    # By its name alone: this machine remembers that it has handed the grid over.
    handle = attach_grid("grid")
    until(lambda: handle.status().states.get("placed"), LONG_S)
    (controller,) = controllers_of(grid.home)
    os.kill(controller.pid, signal.SIGKILL)
    job = ended(grid, batch_job)
    assert job["status"] == "SUCCEEDED", lines_of(grid, job)
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [
        128 + signal.SIGKILL,
        0,
    ]
    view = handle.status()
    assert view.state == "closed"
    assert view.states == {"done": len(rows)}
    with handle._opened() as store:
        attempts = store.attempts.all()
        prefix = store.grid().prefix
    jobs = [job["TrainingJobName"] for jobs in grid.jobs(prefix).values() for job in jobs]
    assert sorted(jobs) == sorted(attempt.name for attempt in attempts)
    # Two hundred times as fast a clock lets a job wait beyond its patience where this machine
    # stands still for seconds: it is given up before it begins, and its row is sent again.
    assert {attempt.ending for attempt in attempts} <= {"OK", "CAPACITY"}, attempts
    assert sorted(attempt.row_key for attempt in attempts if attempt.ending == "OK") == sorted(
        row["key"] for row in rows
    )
    assert view.money.spent_usd == pytest.approx(books(grid, prefix), abs=0.005)


# Their jobs take longer than any test.
ENDLESS = SCENARIO.replace("run_s = 600", "run_s = 80000")


@pytest.fixture
def endless(tmp_path):
    with account(tmp_path, ENDLESS) as grid:
        yield grid


@contextlib.contextmanager
def raysm(*argv):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "raysm", *argv]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(*argv):
    with raysm(*argv) as process:
        text = process.communicate(timeout=LONG_S)[0]
        assert process.returncode == 0, text
        return text


def test_the_command_line_hands_a_grid_over_and_what_it_is_told_there_reaches_it(endless, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "key,region\n" + "".join(f"{row['key']},{row['region']}\n" for row in rows_in(REGIONS, 4))
    )
    project = tmp_path / "raysm.toml"
    project.write_text(f'[local]\nhome = "{endless.home}"\ninstance_kind = "simulated"\n')
    options = [
        "--rows",
        str(rows),
        "--name",
        "grid",
        "--instance-type",
        TYPE,
        "--project-file",
        str(project),
    ]
    command = [
        "grid",
        "run",
        str(endless.script),
        *options,
        "--via",
        "batch",
        "--job-queue",
        "programs",
    ]
    with raysm(*command, "--job-definition", "controllers", "--", "{key}") as process:
        first = process.stdout.readline()
        assert "4 rows; the Batch job" in first, first + process.stdout.read()
        until(lambda: '"placed": ' in said_by("grid", "status", "--json"), LONG_S)
        # Who goes away has ended nothing.
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONG_S)
        assert process.returncode == 128 + signal.SIGINT
    identifier = re.search(r"the Batch job ([\w-]+)", first)[1]
    batch_job = SentController(id=identifier, queue="programs", region="us-east-1")
    with raysm(*command, "--job-definition", "controllers", "--", "{key}") as process:
        assert (
            f"already has a controller, the Batch job {identifier}"
            in process.communicate(timeout=LONG_S)[0]
        )
        assert process.returncode == 2
    assert "grid stops" in said_by("grid", "stop", "grid")
    job = ended(endless, batch_job)
    assert job["status"] == "SUCCEEDED", lines_of(endless, job)
    assert len(job["attempts"]) == 1
    view = attach_grid("grid").status()
    assert (view.state, view.states) == ("closed", {"stopped": 4})
