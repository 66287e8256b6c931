"""Grids over HTTP: several embedded regions, simulated instances on a fast clock, and instances that really run."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.client.job.handle import attach
from raysm.core.request import Limits
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.errors import InvalidRequest
from raysm.features.grid.local_grids import opened
from tests.support.embedded_grids import EmbeddedGrid, embedded

pytestmark = pytest.mark.long

REGIONS = ("us-east-1", "eu-west-1", "us-west-2", "eu-central-1")

SCENARIO = (Path(__file__).parents[3] / "examples" / "four_regions.toml").read_text()


def rows_in(regions, count):
    return [
        {"key": f"row-{number}", "region": regions[number % len(regions)]}
        for number in range(count)
    ]


@pytest.fixture
def home(tmp_path):
    with embedded(tmp_path / "home", SCENARIO) as folder:
        yield folder


@pytest.fixture
def patient_home(tmp_path):
    # A job of 600 s may end on the fast clock while the command that is to stop it still starts.
    with embedded(tmp_path / "home", SCENARIO.replace("run_s = 600", "run_s = 80_000")) as folder:
        yield folder


def books(grid, prefix):
    """Return what the server itself says that all jobs of a grid cost."""
    usd = {"us-east-1": 1.5, "eu-west-1": 1.6, "us-west-2": 1.5, "eu-central-1": 1.5}
    total = 0.0
    for region, jobs in grid.jobs(prefix).items():
        service = grid.service(grid.target.in_region(region))
        for job in jobs:
            answer = service.call(
                "sagemaker", "describe_training_job", TrainingJobName=job["TrainingJobName"]
            )
            total += usd[region] * answer.get("BillableTimeInSeconds", 0) / 3600
    return total


def test_four_regions_at_the_rates_of_aws_each_row_once_and_the_cost_to_the_cent(home):
    grid = EmbeddedGrid(home, REGIONS)
    # A day: on a slow machine 18 s, which are an hour of the fast clock, may pass before a job has
    # its instances.
    running = grid.run(grid.request(rows_in(REGIONS, 24), retries=1, patience_s=86_400))
    states = {
        record.row.key: (record.state, record.row.region) for record in running.store.rows.all()
    }
    for key, (state, region) in states.items():
        assert state == ("failed" if region == "us-west-2" else "done"), key
    attempts = running.store.attempts.all()
    assert {attempt.ending for attempt in attempts} == {"OK", "ERROR"}
    # No second job of any: the simulated failure is a ValueError, which the same program would
    # raise again.
    assert len(attempts) == 18 + 6
    assert all(attempt.region == states[attempt.row_key][1] for attempt in attempts)
    prefix = running.store.grid().prefix
    assert running.store.costs.money(grid.clock.now()).spent_usd == pytest.approx(
        books(grid, prefix), abs=0.005
    )
    running.close()


def test_a_quota_that_the_region_tells_is_kept_and_its_prices_are_those_of_the_plan(home):
    grid = EmbeddedGrid(home, ("eu-west-1",))
    running = grid.run(grid.request([{"key": "large", "count": 5}, {"key": "small", "count": 2}]))
    assert {record.row.key: record.state for record in running.store.rows.all()} == {
        "large": "impossible",
        "small": "done",
    }
    assert "the quota is 4" in running.store.rows.get("large").reason
    assert [attempt.usd_per_hour for attempt in running.store.attempts.all()] == [1.6]
    running.close()


LACKING = """
speed = 60
[capacity]
start_delay_s = 60
instances = { "ml.g5.xlarge" = 1 }
[simulated]
run_s = 120
[market]
usd_per_hour = { "ml.g5.xlarge" = 1.5, "ml.g6.xlarge" = 1.8, "ml.p4d.24xlarge" = 25.0 }
quotas = { "ml.p4d.24xlarge" = 0 }
"""


def test_the_service_itself_takes_another_type_within_one_job_and_what_was_taken_is_paid_for(
    tmp_path,
):
    with embedded(tmp_path / "home", LACKING) as home:
        grid = EmbeddedGrid(
            home, REGIONS[:1], types=("ml.g5.xlarge", "ml.g6.xlarge", "ml.p4d.24xlarge")
        )
        running = grid.run(grid.request(rows_in(REGIONS[:1], 4), any_type=True, max_cost=100.0))
        attempts = running.store.attempts.all()
        assert running.store.rows.states() == {"done": 4}
        # Not one was lost to a type that there was not enough of.
        assert [attempt.ending for attempt in attempts] == ["OK"] * 4
        prices = {"ml.g5.xlarge": 1.5, "ml.g6.xlarge": 1.8}
        assert {(each.instance_type, each.usd_per_hour) for each in attempts} == set(prices.items())
        sent = grid.service(grid.target).call(
            "sagemaker", "describe_training_job", TrainingJobName=attempts[0].name
        )["ResourceConfig"]
        # The quota of the third forbids it.
        assert [each["InstanceType"] for each in sent["InstancePreferences"]] == list(prices)
        books = sum(prices[each.instance_type] * each.billable_s / 3600 for each in attempts)
        spent = running.store.costs.money(grid.clock.now())
        assert (spent.spent_usd, spent.at_stake_usd) == (pytest.approx(books, abs=0.005), 0)
        in_use = running.store.database.connection.execute(
            "SELECT sum(instances) FROM in_use"
        ).fetchone()[0]
        assert in_use == 0
        running.close()


def test_a_row_that_cannot_be_is_refused_before_anything_is_sent(home):
    grid = EmbeddedGrid(home, REGIONS[:2])
    with pytest.raises(InvalidRequest, match="row 2.*'max_runtime_s'.*'an hour'"):
        grid.run(
            grid.request(
                [{"key": "a", "max_runtime_s": 60}, {"key": "b", "max_runtime_s": "an hour"}]
            )
        )
    assert not any(grid.jobs().values())


SCRIPT = """
import os, pathlib, sys
key, lr = sys.argv[1:3]
print("row", key, "in", os.environ.get("AWS_REGION"), flush=True)
if key == "bad":
    raise SystemExit("the data of this row are broken")
(pathlib.Path(os.environ["SM_MODEL_DIR"]) / "out.txt").write_text(f"{key} {lr}")
"""


def raysm(*argv):
    """Run the command line in a process of its own; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "raysm", *argv], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def test_another_process_sees_stops_and_takes_up_what_a_killed_one_left(patient_home):
    grid = EmbeddedGrid(patient_home, REGIONS[:2])
    running = grid.open(grid.request(rows_in(REGIONS[:2], 6), limits=Limits(max_runtime_s=86_400)))
    while not running.store.attempts.open_count():
        running.clock.sleep(running.step(running.clock.now()) or 0.0)
    # As a killed process leaves it: its lease runs out by itself, on the service's fast clock.
    running.store.database.close()
    code, text = raysm("grid", "status", "grid", "--json")
    assert (code, '"placed"' in text) == (0, True), text
    code, text = raysm("grid", "stop", "grid")
    assert (code, "stopped" in text) == (0, True), text
    after = grid.run(grid.request(rows_in(REGIONS[:2], 6), limits=Limits(max_runtime_s=86_400)))
    assert set(after.store.rows.states()) == {"stopped"}
    names = [attempt.name for attempt in after.store.attempts.all()]
    assert len(names) == len(set(names)) <= 6
    prefix = after.store.grid().prefix
    after.close()
    assert {job["TrainingJobStatus"] for jobs in grid.jobs(prefix).values() for job in jobs} <= {
        "Stopped"
    }


@pytest.mark.timeout(900)
def test_instances_that_really_run_in_two_regions_fail_alone_and_are_done_once(tmp_path):
    """The command line, as a user has it: run, look, mend, retry, and the same command again."""
    with embedded(tmp_path / "home") as home:
        script = tmp_path / "train.py"
        rows = tmp_path / "rows.csv"
        script.write_text(SCRIPT)
        rows.write_text(
            "key,lr,region\na,0.1,us-east-1\nb,0.2,eu-west-1\nc,0.3,us-east-1\nbad,0.4,eu-west-1\n"
        )
        options = ["--rows", str(rows), "--name", "real", "--retries", "0"]
        command = ["grid", "run", str(script), *options, "--", "{key}", "{lr}"]
        code, text = raysm(*command)
        assert code == 1, text
        with opened("real") as store:
            assert store.rows.states() == {"done": 3, "failed": 1}
            assert "the data of this row are broken" in store.rows.get("bad").reason
            sent = {attempt.row_key: attempt for attempt in store.attempts.all()}
        grid = EmbeddedGrid(home, REGIONS[:2], kind="process", types=(LOCAL_TYPE,))
        for key, attempt in sent.items():
            text = io.StringIO()
            attach(attempt.name, grid.service(grid.target.in_region(attempt.region))).logs(to=text)
            assert f"row {key} in {attempt.region}" in text.getvalue()
        # The same command: nothing is done twice, and what failed stays so until somebody says
        # otherwise.
        code, text = raysm(*command)
        assert code == 1, text
        with opened("real") as store:
            assert [attempt.name for attempt in store.attempts.all()] == [
                each.name for each in sent.values()
            ]
        script.write_text(SCRIPT.replace('key == "bad"', "False"))
        code, text = raysm("grid", "retry", "real")
        assert code == 0, text
        code, text = raysm(*command)
        assert code == 0, text
        with opened("real") as store:
            assert store.rows.states() == {"done": 4}
            numbers = [len(store.attempts.of_row(key)) for key in ("a", "b", "bad", "c")]
            assert numbers == [1, 1, 2, 1]
