"""Packages that are brought when something of them is first asked for, and are meanwhile as if they were there."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap import deferred
from raysm.bootstrap.deferred import raysm_deferred

PACKAGE = """
print("built")
from {name}.other import useful
from {name}.hidden import nothing
from {name} import other
__all__ = ["useful"]
__version__ = "7.1"
"""

NAMES = [path.stem for path in deferred.FOLDER.glob("*.py") if path.stem not in ("__init__", "raysm_deferred")]


@pytest.fixture(params=NAMES)
def run(tmp_path, request):
    """Runs code in which NAME is a package that is installed with one function, or not; returns what it prints."""
    package = tmp_path / "site" / request.param
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PACKAGE.format(name=request.param))
    (package / "other.py").write_text("def useful():\n    return __name__\n")
    (package / "hidden.py").write_text("nothing = None\n")

    def run(code, *options, installed=True):
        path = os.pathsep.join(map(str, [deferred.FOLDER, tmp_path / "site"] if installed else [deferred.FOLDER]))
        command = [sys.executable, *options, "-c", code.replace("NAME", request.param)]
        ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.replace(request.param, "NAME").split()

    return run


def test_it_is_brought_once_by_the_first_name_that_is_asked_for(run):
    code = "import NAME; print('imported'); print(NAME.useful(), NAME.__version__, NAME.other.useful())"
    assert run(code) == ["imported", "built", "NAME.other", "7.1", "NAME.other"]


def test_a_module_that_it_imports_is_an_attribute_of_it(run):
    assert run("import NAME; print(NAME.hidden.nothing)") == ["built", "None"]


# The other one has the one name that is asked of it.
@pytest.mark.parametrize("run", ["jsonschema", "wcwidth"], indirect=True)
def test_a_star_has_what_the_package_says(run):
    assert run("from NAME import *; print(useful())") == ["built", "NAME.other"]


@pytest.mark.parametrize(
    "how", ["import NAME.other; print(NAME.other.useful())", "from NAME.other import useful; print(useful())"]
)
def test_a_module_of_it_is_found_without_it(run, how):
    assert run(how)[-1:] == ["NAME.other"]


def test_what_it_has_not_is_no_attribute_of_it(run):
    assert run("import NAME; print(hasattr(NAME, 'absent'), hasattr(NAME, '__wrapped__'))") == [
        "built",
        "False",
        "False",
    ]


def test_where_it_is_not_installed_it_cannot_be_imported(run):
    code = """
try:
    import NAME
except ModuleNotFoundError as error:
    print(error.name)
"""
    # -S leaves the packages out that this Python has.
    assert run(code, "-S", installed=False) == ["NAME"]


def test_one_that_only_a_finder_of_its_own_finds_is_found():
    # As what is installed to be edited: frozen modules are in no folder either.
    package = raysm_deferred.Package("__hello__")
    assert callable(package.ask("main"))
