"""The order in which the tests of two processes are run."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.order import LONGEST, TESTS, by_chance, drawn, has_none, longest_first


@pytest.mark.parametrize("name", LONGEST)
def test_a_file_that_is_said_to_take_long_is_there(name):
    assert (TESTS / name).is_file()


def test_the_tests_of_a_file_that_takes_long_come_first_and_keep_their_order():
    paths = [TESTS / name for name in ("test_order.py", LONGEST[1], "test_errors.py", LONGEST[0], LONGEST[1])]
    items = [SimpleNamespace(path=path, number=number) for number, path in enumerate(paths)]
    longest_first(items)
    assert [item.number for item in items] == [3, 1, 4, 0, 2]


def test_files_by_chance_are_in_the_same_order_in_each_process_of_a_run(monkeypatch):
    items = [SimpleNamespace(path=TESTS / f"test_{number // 3}.py", number=number) for number in range(60)]
    orders = []
    for run in ("one run", "one run", "another one"):
        monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", run)
        again = list(items)
        by_chance(again)
        orders.append([item.number for item in again])
    first, second, other = orders
    assert first == second != other
    # The tests of a file share clusters: they stay together, and in their order.
    assert all(first[at] % 3 == at % 3 and first[at] // 3 == first[at - at % 3] // 3 for at in range(60))


def test_what_has_not_begun_by_a_time_is_skipped_and_says_so(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_a(): ...\ndef test_b(): ...\n")
    for until, outcome in ((0, "2 skipped"), (4e9, "2 passed")):
        # Of this project's conftest.py, with a file that is not of it.
        options = ["-rs", "-n", "0", "-p", "tests.conftest", "-o", f"cache_dir={tmp_path}/cache", "--until", str(until)]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, tmp_path], cwd=TESTS.parent, capture_output=True, text=True
        )
        assert outcome in run.stdout, run.stdout + run.stderr
        assert ("no time was left for it" in run.stdout) == (until == 0)


def test_of_many_tests_each_process_of_a_run_draws_the_same(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "one run")
    chosen = drawn(list(range(100)), 8)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 8
    assert drawn(list(range(100)), 8) == chosen
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "another one")
    assert drawn(list(range(100)), 8) != chosen


def test_of_few_tests_all_are_drawn():
    assert drawn([1, 2], 8) == [1, 2]


@pytest.mark.parametrize(
    ("marks", "text", "is_left_out"),
    [
        ("long", "@pytest.mark.long\ndef test_a(): ...", False),
        ("long", "param(1, marks=pytest.mark.long)", False),
        ("long", "@pytest.mark.browser\ndef test_a(): ...", True),
        # Which files a whole expression is about only pytest can say.
        ("long or browser", "def test_a(): ...", False),
        ("not long", "def test_a(): ...", False),
        ("", "def test_a(): ...", False),
    ],
)
def test_a_file_without_the_mark_that_is_asked_for_is_left_out(tmp_path, marks, text, is_left_out):
    path = tmp_path / "test_file.py"
    path.write_text(text)
    assert has_none(path, marks) == is_left_out


def test_what_has_no_tests_is_left_to_pytest(tmp_path):
    (tmp_path / "conftest.py").touch()
    assert not has_none(tmp_path, "long")
    assert not has_none(tmp_path / "conftest.py", "long")
