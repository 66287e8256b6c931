"""A grid in the foreground: rows are sent, found again, and written back; against the client's own fake of AWS."""

import contextlib
import sqlite3
import time
from datetime import UTC, date, datetime

import pytest

from raysm.core.client.costs.prices import PriceTable, RegionPrices
from raysm.core.protocol.home import Clock
from raysm.core.request import Limits
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.controller import SHORTEST_S
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.market import Place, Quota
from raysm.features.grid.plan import GridFacts, PlannedGrid, ReadyGrid, plan_grid
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import Running, open_running, stop_grid
from raysm.features.grid.snapshot import snapshot
from raysm.features.grid.sources.databases import Query
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.store.database import this_process
from raysm.features.grid.store.store import Store, path_of
from raysm.features.grid.template import Template
from raysm.features.script.request import Script
from tests.support.homes import in_home
from tests.support.sagemaker import REGION, aws

ROWS = [{"key": "a", "lr": 0.1}, {"key": "b", "lr": 0.2}]


@pytest.fixture
def left(remote, home, tmp_path):
    """A grid with two open jobs, whose controller has ended."""
    bench = Bench(remote, tmp_path)
    running = bench.open(bench.request(ROWS))
    while len(bench.sent) < 2:
        bench.now += running.step(bench.now)
    running.close()
    store = Store(path_of("drives"))
    yield bench, store
    store.close()


def test_without_a_controller_the_open_jobs_are_stopped_and_named(left):
    bench, store = left
    # Ten seconds between two looks at the jobs pass in a tenth of a second.
    store.change_clock(Clock(speed=100.0, begun_s=time.time()))
    done = stop_grid(store, path_of("drives"), lambda target: bench.remote.service)
    assert sorted(done.stopped) == sorted(bench.sent) == sorted(bench.remote.sagemaker.stopped)
    assert (done.open, done.has_controller) == (0, False)
    assert store.rows.states() == {"stopped": 2}
    assert store.grid().state == "closed"


def test_with_a_controller_only_the_wish_is_recorded(left):
    bench, store = left
    other = Store(path_of("drives"))
    other.database.take_lease(this_process(), time.time())
    done = stop_grid(store, path_of("drives"), lambda target: bench.remote.service)
    assert (done.stopped, done.open, done.has_controller) == ((), 2, True)
    assert bench.remote.sagemaker.stopped == []
    assert store.grid().state == "stopping"
    other.close()


TYPE = "ml.m5.large"
TABLE = PriceTable.of(
    [RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={TYPE: 2.0})]
)


@pytest.fixture
def home(tmp_path):
    with in_home(tmp_path / "home") as folder:
        yield folder


class Bench:
    """A grid over the fake, under a clock of the test's."""

    def __init__(self, remote, tmp_path):
        self.remote = remote
        self.now = datetime.now(UTC).timestamp()
        self.script = tmp_path / "train.py"
        self.script.write_text("print(1)\n")

    def request(self, rows, args=("{lr}",), **more):
        template = Template(
            workload=Script(str(self.script), args=args),
            target=aws(),
            options={"limits": Limits(max_runtime_s=3600)},
        )
        fields = {
            "name": "drives",
            "regions": (REGION,),
            "instance_types": (TYPE,),
            "rules": Rules(brake=0),
        }
        return GridRequest(template=template, source=source_of(rows), **fields | more)

    def open(self, request, quotas=None, **more):
        known = GridFacts(prices=TABLE, quotas=quotas or {})
        grid = ReadyGrid(request=request, rows=request.read_rows(), facts=known)
        return open_running(grid, lambda target: self.remote.service, now=self.now, **more)

    def run(self, running, **end):
        """Run to the end; every job ends a minute after it was sent."""
        while (wait_s := running.step(self.now)) is not None:
            self.now += max(wait_s, 1.0)
            for job in self.remote.sagemaker.jobs.values():
                answer = job["answer"]
                moment = datetime.fromtimestamp(self.now, UTC)
                if answer["TrainingJobStatus"] == "InProgress":
                    answer |= {
                        "TrainingJobStatus": "Completed",
                        "TrainingStartTime": moment,
                        "TrainingEndTime": moment,
                    }
                    answer |= {
                        "BillableTimeInSeconds": 1800,
                        "TrainingTimeInSeconds": 1800,
                        "LastModifiedTime": moment,
                    }
                    answer |= end

    @property
    def sent(self):
        return [call["TrainingJobName"] for call in self.remote.sagemaker.sent]


@pytest.fixture
def bench(remote, home, tmp_path):
    return Bench(remote, tmp_path)


def test_each_row_becomes_a_job_and_the_grid_is_over_when_all_are_done(bench):
    running = bench.open(bench.request(ROWS))
    bench.run(running)
    assert running.store.rows.states() == {"done": 2}
    assert len(bench.sent) == 2
    (first, *_) = running.store.attempts.of_row("a")
    assert (first.usd, first.price_version, first.max_runtime_s) == (pytest.approx(1.0), "v1", 3600)
    running.close()


def objects(bench, part):
    """Return the bytes of all objects of the bucket that have ``part`` in their keys."""
    listed = bench.remote.s3.list_objects_v2(Bucket=bench.remote.service.bucket.name).get(
        "Contents", ()
    )
    return {item["Key"]: item["Size"] for item in listed if part in item["Key"]}


def test_what_rows_share_is_uploaded_once_and_a_row_adds_two_small_objects(bench):
    rows = [{"key": f"k{number}", "lr": number / 7} for number in range(12)]
    running = bench.open(bench.request(rows))
    while running.store.attempts.open_count() < len(rows):
        bench.now += max(running.step(bench.now), 1.0)
    shared = objects(bench, "/shared/")
    own = objects(bench, "/payloads/")
    written = [
        key
        for operation, key in bench.remote.s3.calls
        if operation in ("put_object", "upload_file")
    ]
    # raysm itself, and the source: however many rows there are.
    assert sorted(key for key in written if key in shared) == sorted(shared)
    assert len(own) == 2 * len(rows)
    assert sum(own.values()) <= 20 * 1024 * len(rows)
    running.close()


def test_a_paused_grid_sends_its_other_rows_when_the_user_goes_on(bench):
    request = bench.request(ROWS, rules=Rules(brake=1, parallel=1, retries=0))
    first = bench.open(request)
    bench.run(first, TrainingJobStatus="Failed", FailureReason="AlgorithmError: ValueError: lr")
    first.close()
    second = bench.open(request)
    assert second.store.grid().state == "paused"
    second.close()
    third = bench.open(request, goes_on=True)
    bench.run(third)
    assert third.store.rows.states() == {"done": 1, "failed": 1}
    third.close()


def test_a_grid_that_is_run_again_with_other_rules_follows_them(bench):
    running = bench.open(bench.request(ROWS, rules=Rules(brake=0, parallel=1)))
    for _ in range(5):
        bench.now += running.step(bench.now)
    assert len(bench.sent) == 1
    running.close()
    again = bench.open(bench.request(ROWS, rules=Rules(brake=0, parallel=2)))
    for _ in range(5):
        bench.now += again.step(bench.now)
    assert len(bench.sent) == 2
    again.close()


def test_no_more_jobs_are_open_than_the_quotas_of_the_plan_allow(bench):
    place = Place(region=REGION, instance_type=TYPE)
    running = bench.open(bench.request(ROWS), quotas={place: Quota(limit=1)})
    for _ in range(5):
        bench.now += running.step(bench.now)
    assert len(bench.sent) == 1
    running.close()


def test_a_grid_keeps_what_its_plan_says_that_it_will_cost(bench):
    request = bench.request([row | {"expected_s": 1800} for row in ROWS])
    rows = request.read_rows()
    known = GridFacts(prices=TABLE, quotas={})
    plan = plan_grid(request, rows, TABLE, {}, today=date(2026, 11, 1))
    grid = PlannedGrid(request=request, rows=rows, facts=known, plan=plan)
    running = open_running(grid, lambda target: bench.remote.service, now=bench.now)
    assert (
        snapshot(running.store, bench.now).planned_usd
        == plan.usd
        == (pytest.approx(2.0), pytest.approx(2.0))
    )
    running.close()


def test_another_script_under_the_same_name_is_refused(bench):
    bench.open(bench.request(ROWS)).close()
    with pytest.raises(InvalidRequest, match="--other.*--name"):
        bench.open(bench.request(ROWS, args=("--other", "{lr}")))


def test_a_waiting_row_without_a_key_that_was_corrected_is_named(bench, caplog):
    bench.open(bench.request([{"lr": 0.1}, {"lr": 0.2}])).close()
    assert caplog.messages == []
    running = bench.open(bench.request([{"lr": 0.1}, {"lr": 0.3}]))
    (old,) = (
        record.row.key
        for record in running.store.rows.all()
        if record.row.parameters == {"lr": 0.2}
    )
    assert (
        f"1 waiting row of the grid is not in the source any more, and will run: {old};"
        in caplog.text
    )
    running.close()


class SlowController:
    """Each of its steps takes three seconds, and says how long to wait."""

    removed = ()

    def __init__(self, *waits_s):
        self.now = 1_800_000_000.0
        self._waits_s = list(waits_s)

    def step(self, now):
        self.now += 3.0
        return self._waits_s.pop(0)


def test_the_pause_after_a_step_is_shorter_by_the_time_that_the_step_took(store):
    controller = SlowController(10.0, 2.0, None)
    pauses_s = []
    Running(store, controller, None, 0, Clock()).run(pauses_s.append, lambda: controller.now)
    assert pauses_s == [7.0, SHORTEST_S]


def test_rows_of_a_query_are_written_back_to_their_database(bench, tmp_path):
    path = tmp_path / "campaigns.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE drives (campaign TEXT, lr REAL)")
        connection.execute("INSERT INTO drives VALUES ('a', 0.1), ('b', 0.2)")
        connection.commit()
    query = Query("SELECT campaign AS key, lr FROM drives", on=path)
    running = bench.open(bench.request(query, rules=Rules(brake=0, write_back=True)))
    bench.run(running)
    running.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT task, state, usd FROM raysm_tasks ORDER BY task"
        ).fetchall()
    assert rows == [("a", "done", pytest.approx(1.0)), ("b", "done", pytest.approx(1.0))]


@pytest.fixture
def written_back(bench, tmp_path):
    """A grid whose states are written to the database of its rows, and that database."""
    path = tmp_path / "campaigns.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE drives (campaign TEXT, lr REAL)")
        connection.execute("INSERT INTO drives VALUES ('a', 0.1)")
        connection.commit()
    query = Query("SELECT campaign AS key, lr FROM drives", on=path)
    running = bench.open(bench.request(query, rules=Rules(brake=0, write_back=True)))
    yield running, path
    running.close()


def take_away(path):
    """Let a database fail at once; SQLite waits some seconds for a lock."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE raysm_tasks RENAME TO elsewhere")
        connection.commit()


@pytest.fixture
def away(bench, written_back):
    """A grid that is over while the database of its rows does not answer, and that database."""
    running, path = written_back
    bench.now += running.step(bench.now)
    take_away(path)
    return running, path


def test_a_grid_whose_jobs_run_goes_on_while_its_database_does_not_answer(bench, written_back):
    running, path = written_back
    take_away(path)
    assert running.step(bench.now) is not None
    assert running.store.rows.states() == {"placed": 1}


def test_the_last_states_are_written_back_when_the_database_answers_again(bench, away):
    running, path = away
    for job in bench.remote.sagemaker.jobs.values():
        moment = datetime.fromtimestamp(bench.now, UTC)
        times = {"TrainingStartTime": moment, "TrainingEndTime": moment, "LastModifiedTime": moment}
        job["answer"] |= {"TrainingJobStatus": "Completed", **times}
    while running.store.grid().state != "closed":
        bench.now += running.step(bench.now)
    assert running.step(bench.now) is not None
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE elsewhere RENAME TO raysm_tasks")
        connection.commit()
    bench.run(running)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT task, state FROM raysm_tasks").fetchall() == [
            ("a", "done")
        ]


def test_a_grid_whose_last_states_cannot_be_written_back_ends_with_an_error(bench, away):
    running, _ = away
    with pytest.raises(ServiceError, match="raysm_tasks"):
        bench.run(running)
    assert running.store.rows.states() == {"done": 1}
