"""What is promised of the interactive side: docs/reference/interactive.md names the tests that hold it."""

import re
from pathlib import Path

import pytest

from tests.test_findings import functions_in

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs/reference/interactive.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| #"))]
HELD_BY = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


def goals():
    """Return the numbers of the goals, in their order."""
    return [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]


def test_no_goal_is_left_out():
    assert goals() == [*range(1, 25)]


def test_what_holds_a_promise_is_there():
    named = HELD_BY.findall(PAGE)
    assert len(named) > 60
    gone = [(file, name) for file, name in named if not (TESTS / file).is_file()]
    gone += [(file, name) for file, name in named if name and name not in functions_in(TESTS / file)]
    assert gone == []


@pytest.mark.parametrize("row", [pytest.param(row, id=row[2:40]) for row in ROWS if "held by" not in row])
def test_a_promise_has_what_holds_it(row):
    assert HELD_BY.search(row.rpartition(" | ")[2])
