"""Which of the user's modules travel with a function, or with a kind of workload."""

import importlib
import importlib.util
import pickle
import sys
import threading
import types

import cloudpickle
import pytest

from raysm.core.client.source.function import pickled_call, pickled_value
from raysm.core.client.source.package import late_source, own_modules, package_of, unpicklable_part
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.features.training.client import DataParallel
from raysm.features.training.request import TrainLoop
from tests.support.kinds import imported_from

torch = pytest.importorskip("torch")


def double(number):
    return 2 * number


def test_a_kind_of_ones_own_brings_the_modules_that_define_it(tmp_path):
    with imported_from(tmp_path) as sweep:
        package = package_of(sweep(trials=3))
    assert (package.title, package.pickled) == ("Sweep", None)
    assert {"sweep.py", "sweep_runner.py"} <= set(package.source.files)


def test_two_files_of_one_name_are_refused_with_both_places(tmp_path):
    (tmp_path / "own").mkdir()
    for name in ("main.py", "wording.py"):
        (tmp_path / "own" / name).write_text("import wording")
    script = package_of(Script(str(tmp_path / "own" / "main.py")))
    with imported_from(tmp_path / "kinds") as sweep:
        with pytest.raises(InvalidRequest, match=r"'wording\.py'.*own.*kinds"):
            package_of(
                types.SimpleNamespace(
                    workload=sweep,
                    pickled=lambda: b"",
                    source=lambda: script.source,
                    title=lambda: "scripted",
                )
            )


def loop(config):
    return config["lr"]


def test_a_loop_travels_with_its_config():
    workload = DataParallel(loop, config={"lr": 0.1}, precision="bf16", workers=4, max_restarts=2)
    function, args, named = pickle.loads(workload.pickled())
    assert function(*args, **named) == 0.1
    asked = workload.workload()
    assert isinstance(asked, TrainLoop)
    assert (asked.precision, asked.workers, asked.max_restarts) == ("bf16", 4, 2)
    assert asked.name.endswith("loop")


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        ((3,), {}, "function.*got 3"),
        ((lambda: None,), {"config": {"lr": 1}}, "lambda.*one argument"),
        ((loop,), {"config": [1]}, r"config.*got \[1\]"),
        ((loop,), {"workers": 0}, "workers.*got 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments, fields, message):
    with pytest.raises(InvalidRequest, match=message):
        DataParallel(*arguments, **fields)


LOCK = threading.Lock()


def test_the_argument_or_the_variable_that_cannot_be_pickled_is_named():
    held = threading.Lock()

    def closes(*args, **kwargs):
        return held

    for args, kwargs, part in (
        ((1, LOCK), {}, "args[1]"),
        ((), {"x": {"a": LOCK}}, "x"),
        ((), {}, "held (used by closes)"),
    ):
        assert unpicklable_part(closes, args, kwargs, cloudpickle.dumps) == part
    with pytest.raises(InvalidRequest, match=r"double.*args\[0\]: TypeError: .*lock.*open files"):
        pickled_call(double, (LOCK,), {})
    with pytest.raises(InvalidRequest, match="a lock, cannot be pickled"):
        pickled_value(LOCK)


def count_classes(dataset):
    return torch.tensor(len(dataset.classes))


def test_a_function_travels_that_uses_torch_and_the_name_of_one_of_its_odd_modules():
    assert type(torch.classes) is not types.ModuleType
    function, args, _ = pickle.loads(
        pickled_call(count_classes, (types.SimpleNamespace(classes=["a", "b"]),), {})
    )
    assert function is not count_classes
    assert function(*args) == 2


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


def test_the_modules_beside_a_functions_own_travel_also_those_that_are_imported_later(
    imported, tmp_path
):
    steps, elsewhere = imported("own_steps"), tmp_path / "site-packages"
    imported("own_installed", folder=elsewhere)
    assert set(own_modules(steps.f)) == {steps}
    later = imported("own_later")
    assert set(own_modules(steps.f)) == {steps, later}


def test_a_package_travels_of_which_a_function_imports_by_dots_later(tmp_path, monkeypatch):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "steps.py").write_text("def f():\n    from . import later\n    return later\n")
    (package / "later.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    steps = importlib.import_module("own_package.steps")
    try:
        assert set(late_source(steps.f).files) == {
            f"own_package/{name}.py" for name in ("__init__", "steps", "later")
        }
    finally:
        for name in ("own_package.steps", "own_package"):
            del sys.modules[name]
