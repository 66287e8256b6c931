"""The order in which the tests of two processes are run."""

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
