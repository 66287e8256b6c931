"""A grid as it is asked for."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.rows.source import source_of
from raysm.request import Local, Script


def grid(*rows, args=(), **more):
    template = Template(workload=Script("train.py", args=args), target=Local())
    return GridRequest(name="drives", template=template, source=source_of(list(rows)), **more)


def test_its_rows_are_tasks():
    assert [task.key for task in grid({"key": "a"}, {"key": "b"}).tasks()] == ["a", "b"]


def test_a_column_that_a_template_takes_and_no_row_has_is_refused_before_rows_are_looked_at():
    with pytest.raises(InvalidRequest, match="did you mean {depth}"):
        grid({"key": "a", "depth": 1, "count": "x"}, args=("{dept}",)).tasks()


def test_more_rows_than_may_be_are_refused():
    with pytest.raises(InvalidRequest, match="has more than 1 rows"):
        grid({"key": "a"}, {"key": "b"}, max_rows=1).tasks()


@pytest.mark.parametrize("fields", [{"regions": ("useast1",)}, {"count": 0}, {"max_rows": 0}], ids=str)
def test_what_cannot_be_is_refused_with_its_value(fields):
    value = next(iter(fields.values()))
    with pytest.raises(InvalidRequest, match=str(value[0] if isinstance(value, tuple) else value)):
        grid({"key": "a"}, **fields)
