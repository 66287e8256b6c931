"""The order in which the tests of two processes are run."""

import re
from types import SimpleNamespace

import pytest

from tests.support.order import LONGEST, TESTS, longest_first


@pytest.mark.parametrize("name", LONGEST)
def test_a_file_that_is_said_to_take_long_is_there(name):
    assert (TESTS / name).is_file()


def test_the_tests_of_a_file_that_takes_long_come_first_and_keep_their_order():
    paths = [TESTS / name for name in ("test_order.py", LONGEST[1], "test_findings.py", LONGEST[0], LONGEST[1])]
    items = [SimpleNamespace(path=path, number=number) for number, path in enumerate(paths)]
    longest_first(items)
    assert [item.number for item in items] == [3, 1, 4, 0, 2]


def test_what_is_marked_for_a_browser_lies_where_ci_run_looks_for_it():
    # It collects that folder alone: to collect them all takes half a minute.
    mark = re.compile(r"^(?:@|pytestmark\b).*\bmark\.browser\b", re.MULTILINE)
    assert {path.parent for path in TESTS.rglob("test_*.py") if mark.search(path.read_text())} == {TESTS / "browser"}
    assert "-m browser -n 0 tests/browser\n" in (TESTS.parent / ".ci" / "run").read_text()
