"""Functions of a session, before anything of them is sent."""

import threading

import pytest

from raysm.client.session.functions import FOLLOWED, SessionFunctions
from raysm.contract.session import BATCH, SHELL
from raysm.errors import InvalidRequest
from tests.support.sessions import served


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "served") as running:
        yield running


def test_what_cannot_be_pickled_is_refused_by_its_path_and_nothing_is_sent(session, server):
    assert isinstance(session, SessionFunctions)
    with pytest.raises(InvalidRequest, match=r"args\[0\]\['lock'\] is a lock"):
        session.submit(print, {"fine": 1, "lock": threading.Lock()})
    with pytest.raises(InvalidRequest, match="cannot be pickled"):
        next(session.map(len, [threading.Lock()]))
    assert server.remote.executed == []


def test_a_function_of_a_map_is_sent_once_for_all_of_its_batches(session, server):
    assert list(session.map(abs, range(-3000, 0))) == list(range(3000, 0, -1))
    assert len(server.remote.functions) == 1
    assert len(server.remote.executed) > 3


def test_another_python_is_refused_where_a_function_would_travel(session):
    session._open.pickles = "2.7"
    for call in (lambda: session.submit(print), lambda: next(session.map(abs, [1]))):
        with pytest.raises(InvalidRequest, match=r"the function \w+ cannot travel pickled: this is Python 2\.7"):
            call()


def test_neither_batches_nor_commands_are_worth_coming_back_to():
    assert not {BATCH, SHELL} & set(FOLLOWED)
