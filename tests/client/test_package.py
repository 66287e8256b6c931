"""What travels with a workload, whatever the user has submitted."""

import pickle

import pytest

import raysm
from raysm.client.source.package import package_of
from raysm.errors import InvalidRequest
from raysm.request import PickledFunction, Script
from tests.support.kinds import imported_from


def double(number):
    return 2 * number


class Scripted:
    """Wraps what needs no wrapping, with the source of a script."""

    def __init__(self, workload, source):
        self._workload, self._source = workload, source

    def workload(self):
        return self._workload

    def pickled(self):
        return b""

    def source(self):
        return self._source

    def title(self):
        return "scripted"


def test_a_script_travels_with_its_source_and_without_a_pickle(tmp_path):
    (tmp_path / "my_train.py").write_text("")
    package = package_of(Script(str(tmp_path / "my_train.py")))
    assert (package.title, package.pickled, list(package.source.files)) == ("my_train", None, ["my_train.py"])


def test_a_function_travels_as_a_pickle_and_is_named_in_the_request():
    package = package_of(raysm.Function(double, 3))
    function, args, _ = pickle.loads(package.pickled)
    assert function(*args) == 6
    assert isinstance(package.workload, PickledFunction)
    assert package.title == "double"


def test_a_loop_without_a_name_is_called_train():
    class Loop:
        def __call__(self, config):
            pass

    assert package_of(raysm.DataParallel(Loop())).title == "train"


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
        with pytest.raises(InvalidRequest, match=r"two files would travel as 'wording.py': .*own.*kinds.*rename one"):
            package_of(Scripted(sweep(), script.source))


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (raysm.Function, "wrap the function"),
        (raysm.remote(double), r"submitted by its own submit\(…\)"),
        (double, "wrap the function"),
        ("train.py", "must be Script, Function, .*got 'train.py'"),
    ],
    ids=["class", "remote", "function", "text"],
)
def test_what_is_no_workload_is_refused_with_what_to_do(workload, message):
    with pytest.raises(InvalidRequest, match=message):
        package_of(workload)
