"""A task is one row: checked when it is made, and known by its key and by what decides its result."""

import re

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.task import KEY_CHARACTERS, Task


def test_a_row_without_a_key_is_refused_with_its_number():
    with pytest.raises(InvalidRequest, match="row 7: its key is empty"):
        Task(key="", position=7)


@pytest.mark.parametrize(("field", "value"), [("count", 0), ("max_runtime_s", -1)])
def test_a_number_that_cannot_be_is_refused_with_row_key_and_value(field, value):
    with pytest.raises(InvalidRequest, match=rf"row 3 \(drive\): {field} must be at least 1, got {value}"):
        Task(key="drive", position=3, **{field: value})


def test_the_hash_of_a_key_can_stand_in_a_jobs_name():
    for key in ("drive 1", "größe/ü", "x" * 500):
        assert re.fullmatch(rf"[a-z0-9]{{{KEY_CHARACTERS}}}", Task(key=key).key_hash)


def test_the_hash_is_of_the_key_alone():
    assert Task(key="a", position=1, count=2).key_hash == Task(key="a", position=9).key_hash
    assert len({Task(key=str(number)).key_hash for number in range(10_000)}) == 10_000


def test_another_order_of_the_rows_is_the_same_work():
    assert (
        Task(key="a", position=1, parameters={"x": 1}).digest == Task(key="a", position=2, parameters={"x": 1}).digest
    )


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"x": 2}},
        {"image": "other"},
        {"inputs": {"train": "s3://b/c"}},
        {"manifests": {"train": "s3://b/c"}},
    ],
)
def test_what_decides_the_result_changes_the_digest(change):
    assert Task(key="a").digest != Task(key="a", **change).digest
