"""What a grid's tables hold comes out as the values that went in, whatever SQLite has no type for."""

import dataclasses
import json
import re

import pytest

from raysm.contract.home import Clock
from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.records import SCHEMA, GridRecord, attempt_record, grid_record, task_record, task_row
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from raysm.request.codec import to_json
from raysm.request.job import NAME_PATTERN

TASK = Task(key="a", position=3, region="eu-west-1", instance_types=("ml.g5.xlarge",), spot=True, expected_s=60.0)

COLUMNS = ("key", "position", "content", "digest", "region", "shape", "priority", "expected_s", "state", "retries_left")

CLOCK = {"clock_speed": 60.0, "clock_begun_s": 1e9}


@pytest.fixture
def grid():
    row = {"name": "g", "run": "abcdef", "state": "open", "why": "", "template": "{}", "source": "{}"}
    return grid_record(row | {"rules": json.dumps(to_json(Rules(retries=4))), "created_s": 1.0, "goes_on": 1} | CLOCK)


def row_of(task, *, done=None):
    row = task_row(task, "template", done, 2)
    return dict(zip(COLUMNS, row, strict=True)) | {"attempts": 0, "reason": "", "forgiven": 0}


def test_a_grid_has_its_rules_and_truth_values(grid):
    assert grid.rules == Rules(retries=4)
    assert grid.goes_on is True
    assert grid.clock == Clock(speed=60.0, begun_s=1e9)


@pytest.mark.parametrize("name", ["drives/2026 october and more words", "größe", "-", "?" * 60])
def test_the_names_of_jobs_are_names_for_the_service(grid, name):
    job = dataclasses.replace(grid, name=name).job_name(TASK, 12)
    assert NAME_PATTERN.fullmatch(job)
    assert job.endswith(f"-abcdef-{TASK.key_hash}-a12")


def test_a_long_name_is_cut_and_still_begins_as_the_user_wrote_it(grid):
    prefix = dataclasses.replace(grid, name="drives/2026 october and more words").prefix
    assert prefix == "drives-2026-october-and-abcdef-"


def test_a_task_comes_back_as_it_went_in():
    record = task_record(row_of(TASK))
    assert (record.task, record.state, record.retries_left) == (TASK, TaskState.WAITING, 2)


def test_a_row_holds_only_what_the_task_says():
    assert json.loads(row_of(Task(key="a"))["content"]) == {"key": "a"}


def test_a_task_that_was_done_before_is_asked_for_with_its_template():
    row = row_of(TASK, done=lambda digest: digest == f"template{TASK.digest}")
    assert task_record(row).state is TaskState.SKIPPED


def test_tasks_that_differ_in_their_worth_alone_have_one_shape():
    assert row_of(TASK)["shape"] == row_of(dataclasses.replace(TASK, key="b", priority=9))["shape"]
    assert row_of(TASK)["shape"] != row_of(dataclasses.replace(TASK, count=2))["shape"]


def test_an_attempt_comes_back_as_it_went_in():
    attempt = Attempt(
        task="a", number=1, name="n", region="r", instance_type="ml", count=1, spot=True, state=AttemptState.MAYBE
    )
    row = dataclasses.asdict(attempt) | {"state": "maybe", "spot": 1, "is_doubtful": 0, "seq": 5}
    assert attempt_record(row) == attempt


def test_a_grid_has_a_column_for_each_field():
    (columns,) = re.findall(r"CREATE TABLE grid \((.*?)\) STRICT", SCHEMA, re.DOTALL)
    fields = {field.name for field in dataclasses.fields(GridRecord)} - {"clock"}
    assert fields | CLOCK.keys() <= set(re.findall(r"(\w+) [A-Z]", columns))
