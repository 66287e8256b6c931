"""The namespace of a session, on a server whose cells run in its main thread."""

import threading

import pytest

from raysm.client.session.functions import SessionNamespace
from raysm.errors import CallCancelled, InvalidRequest
from tests.support.session_process import serving
from tests.support.sessions import until
from tests.support.stub_job import near


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("namespace")
    with serving(folder) as port:
        handle = near(folder, port)
        yield handle
        handle.close()


def test_cells_share_their_names_and_show_their_last_value(session, capsys):
    assert isinstance(session, SessionNamespace)
    assert session.exec("x = 20\nprint('in the cell')").result is None
    assert repr(session.exec("x + 1")) == "21"
    assert capsys.readouterr().out == "in the cell\n"


def test_values_travel_both_ways(session):
    session.push(a=1, b=[2])
    assert session.pull("a") == 1
    assert session.pull("b", "a") == ([2], 1)
    with pytest.raises(NameError, match="the session has no 'nothing'"):
        session.pull("nothing")


def test_what_cannot_be_pushed_is_refused_by_its_name(session):
    with pytest.raises(InvalidRequest, match=r"lock"):
        session.push(lock=threading.Lock())


def test_a_file_is_run_with_its_arguments_under_its_own_name(session, capsys):
    session.exec("import sys; print(sys.argv)", args=["--lr", 0.1], filename="train.py")
    assert capsys.readouterr().out == "['train.py', '--lr', '0.1']\n"
    with pytest.raises(ZeroDivisionError) as raised:
        session.exec("1 / 0", filename="train.py")
    assert 'File "train.py", line 1' in raised.value.__notes__[0]


def test_another_python_may_still_send_source(session):
    session._open.pickles, own = "2.7", session._open.pickles
    try:
        assert repr(session.exec("6 * 7")) == "42"
        with pytest.raises(InvalidRequest, match="what is pushed cannot travel pickled"):
            session.push(a=1)
    finally:
        session._open.pickles = own


def test_all_cells_that_run_or_wait_are_interrupted_and_the_names_stay(session):
    running = session.cell("step = 1\nimport time\ntime.sleep(600)")
    until(lambda: running.status.state == "running")
    waiting = session.cell("step = 2")
    until(lambda: session.state.busy == 2)
    assert session.interrupt() == 2
    for cell in (running, waiting):
        with pytest.raises(CallCancelled):
            cell.result(timeout=60)
    assert session.pull("step") == 1
    assert session.interrupt() == 0
