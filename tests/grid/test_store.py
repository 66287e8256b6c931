"""The store keeps rows and what became of them, whatever happens between two calls."""

import dataclasses
import json
import re

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.capacity import read_market
from raysm.grid.records import grid_record
from raysm.grid.store import path_of
from raysm.grid.task import Rules, Task, TaskState
from raysm.request.codec import to_json
from raysm.request.job import NAME_PATTERN
from tests.support.budgets import USER
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench

ROW = Task(key="a", position=3, region="eu-west-1", instance_types=("ml.g5.xlarge",), spot=True, expected_s=60.0)


CLOCK = {"clock_speed": 60.0, "clock_begun_s": 1e9}


@pytest.fixture
def record():
    row = {"name": "g", "run": "abcdef", "state": "open", "why": "", "template": "{}", "source": "{}"}
    return grid_record(row | {"rules": json.dumps(to_json(Rules(retries=4))), "created_s": 1.0, "goes_on": 1} | CLOCK)


@pytest.mark.parametrize("name", ["drives/2026 october and more words", "größe", "-", "?" * 60])
def test_the_names_of_jobs_are_names_for_the_service(record, name):
    job = dataclasses.replace(record, name=name).job_name(ROW, 12)
    assert NAME_PATTERN.fullmatch(job)
    assert job.endswith(f"-abcdef-{ROW.key_hash}-a12")


LARGE = ("attempt", "task", "event")
"""Tables that grow with the rows of a grid."""


def scans(connection, statements):
    """Return the statements whose plan reads a whole large table, and what the plan says."""
    found = {}
    for statement in statements:
        if not re.match(r"\s*(SELECT|UPDATE|DELETE|WITH|INSERT)", statement):
            continue
        # How SQLite prints an infinite number, which it does not read again.
        statement = re.sub(r"\bInf\b", "9e999", statement)
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
            # "SCAN attempt USING INDEX by_region" reads a partial index, of open attempts for example.
            if re.fullmatch(rf"SCAN ({'|'.join(LARGE)})", row["detail"]):
                found[statement] = row["detail"]
    return found


@pytest.fixture
def bench(tmp_path):
    regions = {
        "us-east-1": Behaviour(capacity=2, run_s=300, fails={"row-1": USER}, lost=0.2),
        "eu-west-1": Behaviour(quota=3, run_s=300, interrupted_s=100.0),
        "us-west-2": Behaviour(refusal=ServiceError("denied", code="AccessDeniedException")),
    }
    bench = Bench(
        tmp_path,
        regions=regions,
        rules=Rules(brake=0, give_up_s=3600),
        tasks=[Task(key=f"row-{number}", position=number, max_runtime_s=7200) for number in range(12)],
    )
    yield bench
    bench.store.close()


def test_no_query_of_a_step_reads_a_whole_table(bench):
    statements = set()
    connection = bench.store.database.connection
    connection.set_trace_callback(statements.add)
    bench.run()
    store, now = bench.store, bench.clock.now
    # Called by steps of grids that have a brake, a rate, or are stopped.
    (store.running(), store.first_ends(3), store.pending_since("us-east-1", now), store.unwritten())
    list(store.tasks(TaskState.WAITING))
    read_market(bench.store, bench.limiter, list(bench.regions), bench.clock.now)
    connection.set_trace_callback(None)
    assert any("attempt" in statement for statement in statements)
    assert scans(connection, statements) == {}


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_a_name_that_is_no_files_name_is_refused(name):
    with pytest.raises(InvalidRequest, match="a grid's name"):
        path_of(name)
