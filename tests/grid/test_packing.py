"""Which rows share a job: pure."""

from dataclasses import replace

import pytest

from raysm.grid.packing import FORMING_S, LONGEST_S, loads_of, together
from raysm.grid.records import waiting_record
from raysm.grid.rules import Rules
from raysm.grid.task import Task


def rows(count, **fields):
    return [waiting_record(Task(key=f"row-{number}", position=number, **fields)) for number in range(count)]


def none(pack):
    raise AssertionError("no row belongs to a pack")


def keys(loads):
    return [[record.task.key for record in load.records] for load in loads]


def sizes(loads):
    return [len(load.records) for load in loads]


def test_without_packs_each_row_has_its_job_and_is_the_task_itself():
    records = rows(3)
    loads = list(loads_of(records, Rules(), none))
    assert [load.task for load in loads] == [record.task for record in records]
    assert {load.task.rows for load in loads} == {()}


def test_so_many_rows_share_a_job_in_their_order_and_the_last_has_what_is_left():
    loads = list(loads_of(rows(7), Rules(pack=3), none))
    assert sizes(loads) == [3, 3, 1]
    assert [row.key for row in loads[1].task.rows] == ["row-3", "row-4", "row-5"]
    # Of a pack of one row too: its files lie where those of all packs do.
    assert len(loads[2].task.rows) == 1


def test_minutes_of_work_fill_a_job_and_a_longer_row_has_its_own():
    records = [*rows(5, expected_s=120.0), *[waiting_record(Task(key="long", expected_s=3600.0))]]
    assert sizes(loads_of(records, Rules(pack_minutes=5), none)) == [2, 2, 1, 1]
    assert sizes(loads_of(records[:5], Rules(pack_minutes=60, pack=4), none)) == [4, 1]


@pytest.mark.parametrize("field", [{"inputs": {"data": "s3://b/x"}}, {"tags": {"team": "a"}}])
def test_rows_of_other_inputs_or_tags_do_not_share_a_job(field):
    records = rows(4)
    for place in (1, 3):
        records[place] = replace(records[place], task=replace(records[place].task, **field))
    assert keys(loads_of(records, Rules(pack=4), none)) == [["row-0", "row-2"], ["row-1", "row-3"]]


def test_what_is_left_of_a_pack_goes_on_together_and_alone():
    records = rows(4)
    begun = [replace(records[place], pack="p", attempts=place) for place in (0, 2)]
    waiting = [begun[0], records[1], begun[1], records[3]]
    loads = list(loads_of(waiting, Rules(pack=10), {"p": begun}.__getitem__))
    assert keys(loads) == [["row-0", "row-2"], ["row-1", "row-3"]]
    # The next number is greater than that of any attempt of any of them.
    assert loads[0].attempts == 2
    assert sizes(loads_of(waiting, Rules(), {"p": begun}.__getitem__)) == [2, 1, 1]


def test_a_pack_that_may_not_be_taken_up_yet_is_left_out():
    records = [replace(rows(1)[0], pack="p")]
    assert list(loads_of(records, Rules(pack=10), lambda pack: ())) == []


def test_the_task_that_stands_for_rows_has_what_the_market_asks_for():
    tasks = [
        Task(key="a", expected_s=60.0, max_runtime_s=100, input_bytes=5, region="r", count=2),
        Task(key="b", expected_s=30.0, max_runtime_s=200, input_bytes=5, region="r", count=2, priority=3),
    ]
    whole = together(tasks)
    assert (whole.key, whole.region, whole.count, whole.priority) == ("a", "r", 2, 3)
    assert (whole.expected_s, whole.max_runtime_s, whole.input_bytes) == (90.0, 300 + FORMING_S, 5)
    assert whole.rows == tuple(tasks)
    assert together([*tasks, Task(key="c", region="r", count=2)]).expected_s is None


def test_no_job_runs_longer_than_an_account_allows_unless_one_row_does():
    assert together([Task(key=str(number)) for number in range(10)]).max_runtime_s == LONGEST_S
    assert together([Task(key="a", max_runtime_s=600_000), Task(key="b")]).max_runtime_s == 600_000
