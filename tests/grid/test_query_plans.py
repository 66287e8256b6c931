"""Queries of a grid: SQLite's plan of each uses an index, so that a step does not get slower with ended jobs."""

import re

import pytest

from raysm.errors import ServiceError
from raysm.grid.attempt import TaskState
from raysm.grid.capacity import read_market
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from tests.support.budgets import USER
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench

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
    (
        store.running(),
        store.first_ends(3),
        store.pending_since("us-east-1", now),
        store.unwritten(),
    )
    list(store.tasks(TaskState.WAITING))
    read_market(bench.store, bench.limiter, list(bench.regions), bench.clock.now)
    connection.set_trace_callback(None)
    assert any("attempt" in statement for statement in statements)
    assert scans(connection, statements) == {}
