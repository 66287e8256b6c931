"""Many calls at once."""

import io
import threading
import time

import pytest

import raysm
from raysm.errors import InvalidRequest, NotDone
from tests.support.sessions import connected_session, served

pytestmark = pytest.mark.usefixtures("by_value")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as server:
        with connected_session(tmp_path_factory.mktemp("job"), server) as one:
            yield one


def slow(seconds):
    time.sleep(seconds)
    return seconds


def test_calls_are_yielded_as_they_end(session, tmp_path):
    def wait(gate):
        while not gate.exists():
            time.sleep(0.01)
        return "late"

    late, early = session.submit(wait, tmp_path / "gate"), session.submit(slow, 0)
    ended = raysm.as_completed([late, early, late])
    assert next(ended) is early
    (tmp_path / "gate").touch()
    assert [call.result() for call in ended] == ["late"]


def test_a_limit_of_time_says_how_many_are_left(session):
    calls = [session.submit(slow, 0), session.submit(slow, 5)]
    with pytest.raises(NotDone, match=r"1 of 2 calls have not ended within 2 s"):
        list(raysm.as_completed(calls, timeout=2))


def test_all_values_come_in_the_form_of_the_calls(session):
    calls = [session.submit(abs, -number) for number in range(5)]
    assert session.gather(calls) == raysm.gather(iter(calls)) == [*range(5)]
    assert session.gather({"a": calls[1], "b": calls[2]}) == {"a": 1, "b": 2}
    calls.append(session.submit(divmod, 1, 0))
    with pytest.raises(ZeroDivisionError):
        session.gather(calls)
    assert isinstance(session.gather(calls, return_exceptions=True)[-1], ZeroDivisionError)


def test_a_callback_is_called_at_the_end_and_at_once_behind_it(session):
    call, heard = session.submit(slow, 0.1), threading.Semaphore(0)
    call.add_done_callback(lambda ended: heard.release() if ended is call else None)
    assert heard.acquire(timeout=60)
    call.add_done_callback(lambda ended: heard.release())
    assert heard.acquire(timeout=60)


def test_progress_is_a_bar_on_one_line(session):
    out = io.StringIO()
    raysm.progress([session.submit(slow, 0.1), session.submit(divmod, 1, 0)], out)
    *_, last = out.getvalue().split("\r")
    assert "2/2, 1 failed" in last
    assert out.getvalue().count("\n") == 1


@pytest.mark.parametrize("function", [raysm.gather, raysm.progress, lambda calls: next(raysm.as_completed(calls))])
def test_what_is_no_call_is_refused(function):
    with pytest.raises(InvalidRequest, match="got 3"):
        function([3])


def test_a_map_over_several_sequences_ends_with_the_shortest(session):
    assert list(session.map(pow, [2, 3, 4], [5, 6])) == [2**5, 3**6]
    with pytest.raises(InvalidRequest, match="map: items must be what a for loop takes, got 5"):
        session.map(pow, [2], 5)
