"""What is promised of the interactive side and of the grid: pages for contributors name the tests that hold it."""

import re
from pathlib import Path

import pytest

from tests.test_findings import functions_in

TESTS = Path(__file__).parent
CONTRIBUTING = TESTS.parent / "docs/contributing"
GOALS = {"interactive": [str(number) for number in range(1, 25)], "grid": [f"G{number}" for number in range(1, 26)]}
PAGES = {name: (CONTRIBUTING / f"{name}-goals.md").read_text() for name in GOALS}
ROWS = [
    pytest.param(line, id=f"{name}-{line[2:40]}")
    for name, page in PAGES.items()
    for line in page.splitlines()
    if line.startswith("| ") and not line.startswith("| ---") and "held by" not in line
]
HELD_BY = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES)
def test_no_goal_is_left_out(page):
    assert re.findall(r"^\| (G?\d+) \|", PAGES[page], re.MULTILINE) == GOALS[page]


@pytest.mark.parametrize("page", PAGES)
def test_what_holds_a_promise_is_there(page):
    named = HELD_BY.findall(PAGES[page])
    assert len(named) > 60
    gone = [(file, name) for file, name in named if not (TESTS / file).is_file()]
    gone += [(file, name) for file, name in named if name and name not in functions_in(TESTS / file)]
    assert gone == []


@pytest.mark.parametrize("row", ROWS)
def test_a_promise_has_what_holds_it(row):
    assert HELD_BY.search(row.rpartition(" | ")[2])
