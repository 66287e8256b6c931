"""One cell in a session."""

import pytest

from raysm.contract.session import RemoteError
from raysm.errors import InvalidRequest
from raysm.views.magics.running import await_future, run_cell
from raysm.views.magics.words import read_cell
from tests.support.fake_sessions import FakeCall, FakeSession


def run(session, line="", source="x = 1\n", variables=None):
    return run_cell(session, read_cell(line), source, {} if variables is None else variables, 7)


def test_lines_are_counted_as_the_notebook_shows_them():
    session = FakeSession()
    run(session)
    run(session, "--whole")
    assert [cell[:2] for cell in session.cells] == [("\nx = 1\n", "Cell In[7]"), ("x = 1\n", "Cell In[7]")]


def test_what_it_prints_is_printed_and_its_value_returned(capsys):
    assert run(FakeSession(call=FakeCall(42, printed="hello\n"))) == 42
    assert capsys.readouterr().out == "hello\n"


def test_variables_are_sent_before_and_brought_afterwards():
    session, variables = FakeSession(), {"a": 1, "b": 2, "other": 3}
    run(session, "--push a,b", variables=variables)
    assert session.variables == {"a": 1, "b": 2}
    session.variables |= {"model": "m", "loss": 0.5}
    run(session, "--pull model", variables=variables)
    run(session, "--pull model,loss", variables=variables)
    assert (variables["model"], variables["loss"]) == ("m", 0.5)


def test_nothing_runs_where_a_variable_is_missing():
    session = FakeSession()
    with pytest.raises(InvalidRequest, match=r"the notebook has no variable 'modle'; did you mean model\?"):
        run(session, "--push modle", variables={"model": 1, "_": 2})
    with pytest.raises(InvalidRequest, match=r"no variable 'pixels'; there are model$"):
        run(session, "--push pixels", variables={"In": [], "Out": {}, "get_ipython": None, "model": 1})
    assert session.cells == []


def test_a_variable_that_the_session_lacks_is_one_line():
    with pytest.raises(InvalidRequest, match="--pull: the session has no 'model'"):
        run(FakeSession(), "--pull model")


def test_a_future_is_the_variables_or_the_cells_value():
    variables, session = {}, FakeSession(call=FakeCall(42))
    assert run(session, "-o later", variables=variables) == 42
    assert variables["later"] is session.call
    assert run(session, "-o later --async", variables=variables) is None
    assert run(session, "--async") is session.call


def test_the_future_of_a_cell_that_fails_is_there():
    variables = {}
    told = RemoteError(type="ValueError", message="no", traceback="Traceback\nValueError: no")
    with pytest.raises(ValueError, match="no") as raised:
        run(FakeSession(call=FakeCall(error=ValueError("no"), told=told)), "-o later", variables=variables)
    assert raised.value._render_traceback_() == ["Traceback", "ValueError: no"]
    assert "later" in variables


def test_an_interrupt_is_told_in_one_line():
    with pytest.raises(KeyboardInterrupt) as raised:
        run(FakeSession(call=FakeCall(interrupted=True)))
    assert len(raised.value._render_traceback_()) == 1


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
    with pytest.raises(InvalidRequest, match=r"--on: the session has no instance 'algo2'; did you mean algo-2"):
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
    assert await_future(session, future) == {"algo-1": 1, "algo-2": 2}
