"""Which of the user's modules travel with a function, or with a kind of workload."""

import importlib
import importlib.util
import pickle
import sys

import pytest

from raysm.client.source.function import pickled_call
from raysm.client.source.package import late_source, own_modules, source_of_kind
from raysm.request import Workload
from raysm.request.workload import KINDS
from tests.support.kinds import imported_from


@pytest.mark.parametrize("kind", KINDS)
def test_raysms_own_kinds_bring_nothing_because_raysm_travels_itself(kind):
    assert source_of_kind(Workload.named(kind)) is None


def test_a_kind_brings_its_module_and_its_runners_with_what_they_import(tmp_path):
    with imported_from(tmp_path) as sweep:
        source = source_of_kind(sweep)
    assert sorted(source.files) == ["sweep.py", "sweep_runner.py", "sweep_search.py", "wording.py"]


def test_a_kind_that_others_installed_brings_nothing(tmp_path):
    with imported_from(tmp_path / "site-packages") as sweep:
        assert source_of_kind(sweep) is None


@pytest.fixture
def imported(tmp_path):
    """Return a function that imports a module from ``tmp_path``, or another folder, under a name; all are let go."""
    names = []

    def load(name, source="def f():\n    pass\n", folder=tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(source)
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        names.append(name)
        return module

    yield load
    for name in names:
        sys.modules.pop(name, None)


def test_the_modules_beside_a_functions_own_travel_also_those_that_are_imported_later(imported, tmp_path):
    steps, elsewhere = imported("own_steps"), tmp_path / "site-packages"
    imported("own_installed", folder=elsewhere)
    assert set(own_modules(steps.f)) == {steps}
    later = imported("own_later")
    assert set(own_modules(steps.f)) == {steps, later}


def test_a_module_that_was_let_go_or_imported_anew_is_not_taken_for_the_old_one(imported):
    steps, old = imported("own_steps"), imported("own_changing")
    assert old in own_modules(steps.f)
    new = imported("own_changing", "x = 2\n")
    assert set(own_modules(steps.f)) == {steps, new}
    del sys.modules["own_changing"]
    assert set(own_modules(steps.f)) == {steps}


def test_an_installed_module_whose_name_becomes_the_users_travels(imported, tmp_path):
    steps = imported("own_steps")
    imported("own_shadowed", folder=tmp_path / "site-packages")
    assert set(own_modules(steps.f)) == {steps}
    shadow = imported("own_shadowed")
    assert set(own_modules(steps.f)) == {steps, shadow}


def test_a_module_that_is_there_under_two_names_travels_with_its_function(imported):
    # As multiprocessing has the program's own, in a process that it has spawned.
    steps = imported("own_steps")
    sys.modules["own_alias"] = steps
    try:
        function, _, _ = pickle.loads(pickled_call(steps.f, (), {}))
    finally:
        del sys.modules["own_alias"]
    assert function is not steps.f


def test_a_package_travels_of_which_a_function_imports_by_dots_later(tmp_path, monkeypatch):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "steps.py").write_text("def f():\n    from . import later\n    return later\n")
    (package / "later.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    steps = importlib.import_module("own_package.steps")
    try:
        assert set(late_source(steps.f).files) == {f"own_package/{name}.py" for name in ("__init__", "steps", "later")}
    finally:
        for name in ("own_package.steps", "own_package"):
            del sys.modules[name]
