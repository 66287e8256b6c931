"""How a name of Ray's is looked for, where the installed Ray has it and where not."""

import sys
import types

import pytest

from raysm.bootstrap.ray_names import Internal, Setting, Text, has_all
from raysm.errors import MissingDependency


@pytest.fixture
def module():
    """A module that stands for one of Ray's."""
    stand_in = types.ModuleType("stand_in_for_ray")
    stand_in.Node = type("Node", (), {"kill": lambda self, check_alive: "killed"})
    sys.modules[stand_in.__name__] = stand_in
    yield stand_in
    del sys.modules[stand_in.__name__]


def internal(name, **more):
    return Internal(module="stand_in_for_ray", name=name, purpose="end a node", **more)


def test_what_is_there_is_found_and_can_be_replaced(module):
    kill = internal("Node.kill")
    assert kill.find() is module.Node.kill
    kill.replace(lambda original: lambda self: original(self, True) + " softly")
    assert module.Node().kill() == "killed softly"


@pytest.mark.parametrize(
    ("missing", "gap"),
    [
        (internal("Node.reap"), "no stand_in_for_ray.Node.reap"),
        (
            internal("Node.kill", fits=lambda kill: kill.no_such_thing),
            "another stand_in_for_ray.Node.kill than the one",
        ),
        (Internal(module="no_ray_at_all", purpose="end a node"), "no no_ray_at_all"),
    ],
)
def test_a_spared_name_that_is_missing_is_left_out_with_one_warning(module, missing, gap, capfd):
    missing.replace(lambda original: pytest.fail("there is nothing to adapt"))
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("raysm: warning: Ray ")
    assert gap in said
    assert "left out: end a node" in said


def test_a_needed_name_that_is_missing_is_an_error_with_ray_s_version(module):
    with pytest.raises(
        MissingDependency, match=r"Ray \d+\.\d+.* has no stand_in_for_ray.Head, which raysm needs to end"
    ):
        internal("Head", is_needed=True).find()


@pytest.mark.parametrize(
    "entry",
    [
        Setting(name="RAY_worker_nicenes", purpose="have half of a name"),
        Setting(name="RAY_NO_SUCH_THING", purpose="be read", module="ray._private.ray_constants"),
        Text(words="Some Ray subprocesses have left:", module="ray.scripts.scripts", purpose="be said"),
        Text(words="anything", module="ray.no_such_module", purpose="be said"),
    ],
)
def test_a_setting_or_a_text_that_no_ray_has_is_missed(entry):
    assert entry.gap() == f"no {entry.path}"


def test_what_takes_several_names_is_left_out_without_one_of_them_with_one_warning(module, capfd):
    lacking = [internal("Node"), internal("Task"), Text(words="any", module="ray.no_such_module", purpose="be said")]
    assert has_all(lacking[:1])
    assert capfd.readouterr().err == ""
    assert not has_all(lacking)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "no stand_in_for_ray.Task" in said
