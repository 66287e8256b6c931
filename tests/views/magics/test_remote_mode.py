"""Every cell remote, and names completed by the session."""

import threading

import pytest

from raysm.errors import SessionEnded
from raysm.views.magics.remote_mode import Completer, RemoteMode
from tests.support.fake_sessions import FakeSession


@pytest.fixture
def mode():
    mode = RemoteMode()
    mode.is_on = True
    return mode


def test_cells_of_python_get_the_line_of_the_magic(mode):
    assert mode(["\n", "x = 1\n"]) == ["%%raysm --whole\n", "\n", "x = 1\n"]


@pytest.mark.parametrize("cell", ["", "\n", "%raysm off\n", "%%raysm -s other\n"])
def test_what_is_ipythons_own_runs_here(mode, cell):
    lines = cell.splitlines(keepends=True)
    assert mode(lines) == lines


def test_switched_off_it_changes_nothing(mode):
    mode.is_on = False
    assert mode(["x = 1\n"]) == ["x = 1\n"]
    assert not mode.covers("x = 1")
    assert mode.covers("%%raysm\nx = 1")


@pytest.mark.parametrize(
    ("before", "name", "matches"),
    [
        ("print(mod", "mod", ["model", "mode"]),
        ("model", "model", ["model"]),
        ("x = model.fi", "model.fi", ["model.fit"]),
        ("3 + ", "", []),
        ("f(1).fi", "", []),
    ],
)
def test_names_are_completed_by_the_session(mode, before, name, matches):
    names = ["model.fit("] if "." in before else ["model", "mode"]
    completer = Completer(mode, lambda cell: FakeSession(matches=names))
    assert completer.matches(before, before) == (name, matches)
    completer.close()


def test_a_cell_that_runs_here_is_none_of_its(mode):
    mode.is_on = False
    completer = Completer(mode, lambda cell: pytest.fail("nobody is to be asked"))
    assert completer.matches("mod", "mod") == ("", [])


def test_without_a_session_there_is_nothing(mode):
    assert Completer(mode, lambda cell: None).matches("mod", "mod") == ("", [])


def test_a_session_that_has_ended_completes_nothing(mode):
    class Ended(FakeSession):
        def complete(self, text):
            raise SessionEnded("it was idle")

    assert Completer(mode, lambda cell: Ended()).matches("mod", "mod") == ("", [])


def test_whoever_types_does_not_wait_for_a_connection_that_is_away(mode):
    is_back = threading.Event()

    class Away(FakeSession):
        def complete(self, text):
            is_back.wait()
            return ["model"]

    completer = Completer(mode, lambda cell: Away())
    assert completer.matches("mod", "mod") == ("", [])
    is_back.set()
    completer.close()


def test_ipython_takes_it_as_a_matcher(mode):
    core = pytest.importorskip("IPython.core.completer")
    completer = Completer(mode, lambda cell: FakeSession(matches=["model"]))
    context = core.CompletionContext("mod", "mod", 3, 0, None)
    answer = completer.matcher()(context)
    assert [completion.text for completion in answer["completions"]] == ["model"]
    assert (answer["suppress"], answer["matched_fragment"]) == (True, "mod")
    completer.close()
