"""One cell in a session, on one instance or on several, and how the notebook shows its end."""

import pytest

from raysm.contract.session import RemoteError
from raysm.errors import CallFailed, InvalidRequest, SessionEnded
from raysm.views.magics.cells import PerInstance, await_cell, run_cell
from raysm.views.magics.magics import CELL
from tests.support.fake_sessions import FakeCall, FakeSession

TRACEBACK = (
    'Traceback (most recent call last):\n  File "Cell In[3]", line 2, in <module>\n    1/0\nZeroDivisionError: no'
)


def run(session, line="", source="x = 1\n", variables=None):
    return run_cell(session, CELL.read(line), source, {} if variables is None else variables, 7)


def test_a_variable_that_the_session_lacks_is_one_line():
    with pytest.raises(InvalidRequest, match="--pull: the session has no 'model'"):
        run(FakeSession(), "--pull model")


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("", [None]),
        ("--on head", [None]),
        ("--on algo-2", ["algo-2"]),
        ("--targets algo-2,algo-1", ["algo-2", "algo-1"]),
        ("-t all", ["algo-1", "algo-2"]),
    ],
)
def test_a_cell_runs_on_the_instances_that_its_line_names(line, hosts):
    session = FakeSession(calls={"algo-1": FakeCall(1), "algo-2": FakeCall(2)})
    run(session, line)
    assert [host for _, _, host in session.cells] == hosts


def test_an_instance_that_there_is_not_is_named_before_anything_runs():
    session = FakeSession(calls={"algo-1": FakeCall(), "algo-2": FakeCall()})
    with pytest.raises(InvalidRequest, match=r"no instance 'algo2'; it has algo-1, algo-2"):
        run(session, "--on algo-1,algo2")
    assert session.cells == []


def test_variables_go_to_the_instances_of_the_cell_and_come_back_from_each():
    session, variables = FakeSession(calls={"algo-1": FakeCall(), "algo-2": FakeCall()}), {"a": 1}
    run(session, "--on all --push a --pull a", variables=variables)
    assert session.variables == {"a@algo-1": 1, "a@algo-2": 1}
    assert variables["a"] == {"algo-1": 1, "algo-2": 1}
    run(session, "--on algo-2 --pull a", variables=variables)
    assert variables["a"] == 1


def test_the_future_of_several_instances_has_one_for_each():
    session = FakeSession(calls={"algo-1": FakeCall(1), "algo-2": FakeCall(2)})
    future = run(session, "--on all --async")
    assert future == session.calls
    assert await_cell(session, future) == {"algo-1": 1, "algo-2": 2}


def test_each_line_has_its_instance_before_it_and_each_value_too(capsys):
    calls = PerInstance({"algo-1": FakeCall(3, printed="one\ntwo"), "algo-2": FakeCall(4, printed="three\n")})
    values = await_cell(FakeSession(), calls)
    assert capsys.readouterr().out == "[algo-1] one\n[algo-1] two\n[algo-2] three\n"
    assert repr(values) == "algo-1: 3\nalgo-2: 4"


def test_a_failure_is_raised_when_all_have_ended_and_names_all_that_failed(capsys):
    told = RemoteError(type="ValueError", message="no", traceback="Traceback\nValueError: no")
    failing = FakeCall(error=ValueError("no"), told=told)
    calls = PerInstance({"algo-1": failing, "algo-2": FakeCall(printed="well\n"), "algo-3": failing})
    with pytest.raises(ValueError, match="no") as raised:
        await_cell(FakeSession(), calls)
    assert raised.value._render_traceback_() == ["Traceback", "ValueError: no"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("[algo-2] well\n", "failed on algo-1, algo-3\n")


def test_an_interrupt_is_for_all_of_them():
    calls = PerInstance({"algo-1": FakeCall(interrupted=True), "algo-2": FakeCall()})
    with pytest.raises(KeyboardInterrupt) as raised:
        await_cell(FakeSession(), calls)
    assert calls["algo-2"].is_cancelled
    assert len(raised.value._render_traceback_()) == 1


def told(kind="ZeroDivisionError", traceback=TRACEBACK):
    return RemoteError(type=kind, message="no", traceback=traceback)


def shown_for(call):
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await_cell(FakeSession(), call)
    return raised.value


@pytest.mark.parametrize("error", [SyntaxError("no"), ExceptionGroup("no", [ValueError()])])
def test_one_that_ipython_would_draw_itself_is_another(error):
    shown = shown_for(FakeCall(error=error, told=told(type(error).__name__)))
    assert isinstance(shown, CallFailed)
    assert shown._render_traceback_() == TRACEBACK.splitlines()


def test_a_connection_that_failed_is_one_line():
    error = SessionEnded("the session digits has ended: it was idle")
    shown = shown_for(FakeCall(error=error))
    assert shown._render_traceback_() == ["SessionEnded: the session digits has ended: it was idle"]
