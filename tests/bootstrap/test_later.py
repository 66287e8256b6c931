"""A package that is there as soon as it is imported, and is executed when something of it is first used."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap.later import find_elsewhere

PACKAGE = """
print("executed")
import time
from . import within
from .within import TWICE
time.sleep(0.2)
LAST = "there"
"""

STUB = """
from raysm.bootstrap.later import bring_later
bring_later(__name__, __file__)
"""


@pytest.fixture
def run(tmp_path):
    """Run code where the package ``slow`` is brought later; return what it prints."""
    later, site = tmp_path / "later", tmp_path / "site"
    later.mkdir()
    (site / "slow").mkdir(parents=True)
    (later / "slow.py").write_text(STUB)
    (later / "nowhere.py").write_text(STUB)
    (site / "slow" / "__init__.py").write_text(PACKAGE)
    (site / "slow" / "within.py").write_text("print('within')\nTWICE = 2\n")
    (later / "broken.py").write_text(STUB)
    (site / "broken.py").write_text("print('tried')\nimport nowhere_at_all\n")
    path = os.pathsep.join([str(later), str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(code):
        command = [sys.executable, "-c", code]
        environ = {**os.environ, "PYTHONPATH": path}
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.split()

    return run


def test_the_import_executes_nothing_and_the_first_use_everything_once(run):
    assert run("import slow; print(slow.__name__, slow.__file__[-16:], slow.__spec__.name)") == [
        "slow",
        "slow/__init__.py",
        "slow",
    ]
    code = "import slow; print('imported'); print(slow.LAST, slow.TWICE); print(type(slow).__name__)"
    assert run(code) == ["imported", "executed", "within", "there", "2", "module"]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("from slow import LAST; print(LAST)", "executed within there"),
        ("import slow; print('LAST' in dir(slow))", "executed within True"),
        ("import slow; print(hasattr(slow, 'nothing'))", "executed within False"),
        ("import slow.within; print(slow.LAST)", "within executed there"),
        ("from slow.within import TWICE; import slow; print(slow.within.TWICE is TWICE)", "within True"),
    ],
)
def test_however_it_is_used_it_is_as_any_other_and_no_module_within_is_executed_twice(run, use, said):
    assert run(use) == said.split()


def test_a_second_thread_sees_it_whole(run):
    code = """
import threading, slow
threads = [threading.Thread(target=lambda: print(slow.LAST + "\\n", end="")) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    assert run(code) == ["executed", "within", *["there"] * 8]


def test_one_that_cannot_be_executed_says_why_each_time_it_is_used(run):
    code = """
import broken
for _ in range(2):
    try:
        broken.anything
    except ModuleNotFoundError as error:
        print(error.name)
"""
    assert run(code) == ["tried", "nowhere_at_all"] * 2


def test_one_that_is_not_installed_cannot_be_imported(run):
    code = """
try:
    import nowhere
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(code) == ["nowhere"]


def test_a_package_is_found_where_it_is_and_not_in_the_folder_of_who_asks(tmp_path):
    (tmp_path / "json.py").touch()
    assert find_elsewhere("json", tmp_path).origin == sys.modules["json"].__file__
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        find_elsewhere("no_such_package", tmp_path)
