"""Calls as futures, and their outcomes."""

import io
import json
import pickle
import sys
import time

import cloudpickle
import pytest

import raysm
from raysm.client.session.calls import Call, Line, cell_result, error_of, show_display, value_of
from raysm.contract.loop_thread import LoopThread
from raysm.contract.session import (
    CALL,
    DISPLAY,
    DONE,
    RUNNING,
    WAITING,
    CallRequest,
    CallStatus,
    Outcome,
    RemoteError,
    Versions,
)
from raysm.errors import CallCancelled, CallFailed, InvalidRequest, NotDone, SessionEnded
from raysm.request.codec import to_json
from tests.support.sessions import connected_session, wired
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("by_value")


@pytest.fixture
def line(server):
    calls = {}

    def hear(message):
        if message.get("call") in calls:
            calls[message["call"]].on_output(message["start"], message["stream"], message["text"])

    with wired(server.port, hear=hear) as opened:
        until(lambda: server.host.state().clients)
        opened.wire.calls = calls
        yield opened


def begun(line, function, *args, id=None, name="f"):
    id = id or f"call-{time.monotonic_ns()}"
    call = Call(id, name, line)
    line.wire.calls[id] = call
    request = CallRequest(kind=CALL, name=name, client="me", python=Versions.here().pickles)
    line.loop.start(call.send(request, [cloudpickle.dumps((function, args, {}))]))
    return call


def test_what_it_raises_is_raised_or_returned(line):
    def fails():
        raise TimeoutError("its own")

    call = begun(line, fails)
    with pytest.raises(TimeoutError, match="its own"):
        call.result(timeout=60)
    assert isinstance(call.exception(), TimeoutError)
    with pytest.raises(CallFailed, match="SystemExit: 3"):
        begun(line, sys.exit, 3).result(timeout=60)


def test_who_does_not_wait_long_enough_is_told_that_it_goes_on(line):
    call = begun(line, time.sleep, 0.5)
    with pytest.raises(NotDone, match=r"^f .*0\.01 s"):
        call.result(timeout=0.01)
    assert not call.done()
    assert call.result(timeout=60) is None


def test_what_it_prints_is_shown_before_its_end(line):
    out = io.StringIO()
    call = begun(line, print, "hello")
    call.show(out=out, err=io.StringIO())
    assert call.done() or call.result(timeout=60) is None
    assert out.getvalue() == "hello\n"
    assert call.logs() == "hello\n"
    # Again nothing is shown, nor waited for.
    call.show(out=out)
    assert out.getvalue() == "hello\n"


def test_output_that_the_other_connection_lost_is_fetched(server):
    with wired(server.port) as line:
        line.wire.calls = {}
        call = begun(line, print, "hello")
        line.wire.calls.clear()
        out = io.StringIO()
        call.show(out=out)
        assert out.getvalue() == "hello\n"


def test_it_is_cancelled_once(line):
    call = begun(line, time.sleep, 1)
    until(lambda: call.status.state == "running")
    assert call.cancel()
    with pytest.raises(CallCancelled, match="^f "):
        call.result(timeout=60)
    assert call.cancelled()
    assert repr(call).endswith(": cancelled>")
    assert not call.cancel()
    assert not Call("unheard", "f", line).cancel()


def test_a_call_that_the_session_lists_as_ended_is_shown_as_done_before_its_outcome_is_here(line):
    begun(line, abs, -3, id="listed").result(timeout=60)
    listed = Call("listed", "f", line, has_ended=True)
    assert listed.done()
    assert repr(listed).endswith(": done>")
    failed = begun(line, abs, "x", id="failed")
    assert isinstance(failed.exception(timeout=60), TypeError)
    assert repr(failed).endswith(": failed>")
    assert not listed.cancel()
    line.wire.calls["listed"] = listed
    line.loop.start(listed.send(None))
    assert listed.result(timeout=60) == 3


class FakeWire:
    """A connection to a session that gives these answers about a call, and loses all output.

    Attributes: sent (for each question, whether the call was sent along), messages.
    """

    def __init__(self, *answers):
        self.answers, self.sent, self.messages = list(answers), [], []

    async def call(self, id, wait_s, request, body=()):
        self.sent.append(request is not None)
        return self.answers.pop(0)

    async def json(self, method, path, **how):
        raise SessionEnded("the session digits has ended: it was closed")

    async def send_message(self, message):
        self.messages.append(message)


@pytest.fixture
def loop():
    running = LoopThread("test")
    yield running
    running.close()


def answer(state, value=None, output_end=0):
    status = CallStatus(id="one", kind=CALL, name="f", state=state, output_end=output_end)
    return to_json(status), Outcome(pickled=pickle.dumps(value)).encode() if state == DONE else b""


def asked_of(wire, loop):
    call = Call("one", "f", Line(loop, wire, "digits"))
    loop.run(call.send(CallRequest(kind=CALL, name="f"), [b"body"]), 60)
    return call


def test_a_call_is_sent_once_and_then_asked_for_until_it_is_done(loop):
    wire = FakeWire(answer(WAITING), answer(RUNNING), answer(DONE, 3))
    assert asked_of(wire, loop).result() == 3
    assert wire.sent == [True, False, False]
    # The session may now forget the outcome.
    assert wire.messages == [{"delivered": "one"}]


def test_a_value_that_has_arrived_is_returned_though_the_output_is_lost_with_the_session(loop, caplog):
    call = asked_of(FakeWire(answer(DONE, 3, output_end=9)), loop)
    assert call.result() == 3
    assert "output of f is lost: the session digits has ended" in caplog.text


ERROR = RemoteError(type="KeyError", message="'lr'", traceback="Traceback …\nKeyError: 'lr'\n", host="algo-1")


def made(error=ERROR, pickled=b""):
    return error_of(Outcome(error=error, pickled=pickled), "train", "digits")


def test_a_value_whose_class_is_not_here_is_named_with_the_remedy():
    pickled = pickle.dumps(ERROR).replace(b"raysm.contract.session", b"raysm.contract.absence")
    with pytest.raises(CallFailed, match="train .*'raysm.contract.absence'"):
        value_of(Outcome(pickled=pickled), "train")


def display(text, **more):
    return DISPLAY, json.dumps({"data": {"text/plain": text}, "metadata": {}, "transient": {}, "update": False} | more)


def test_the_result_of_a_cell_has_all_that_it_printed_and_showed_in_order():
    pieces = [("stdout", "one\n"), display("a figure"), ("stderr", "two"), ("stderr", "\n")]
    result = cell_result(pieces, Outcome(shown={"text/plain": "21", "text/html": "<b>21</b>"}, metadata={"m": 1}))
    assert [each["output_type"] for each in result.outputs] == ["stream", "display_data", "stream", "execute_result"]
    assert result.text == "one\na figure\ntwo\n21\n"
    assert repr(result) == repr(result.result) == "21"
    assert result.result._repr_mimebundle_() == ({"text/plain": "21", "text/html": "<b>21</b>"}, {"m": 1})


def test_a_display_is_updated_in_its_place_and_outputs_are_cleared():
    id = {"transient": {"display_id": "x"}}
    pieces = [display("old", **id), ("stdout", "printed"), display("new", update=True, **id)]
    assert cell_result(pieces, Outcome()).text == "new\nprinted"
    cleared = [*pieces, (DISPLAY, '{"clear": true}')]
    assert cell_result(cleared, Outcome()).text == "new\nprinted"
    assert cell_result([*cleared, ("stdout", "after")], Outcome()).text == "after"
    assert cell_result([*pieces, (DISPLAY, '{"clear": false}')], Outcome()).outputs == []


def test_outside_of_a_notebook_a_display_is_its_text(capsys):
    show_display({"data": {"text/plain": "<b>&"}, "metadata": {}}, sys.stdout)
    show_display({"data": {"text/plain": "again"}, "metadata": {}, "update": True}, sys.stdout)
    assert capsys.readouterr().out == "<b>&\n"


def test_an_exception_is_made_anew_with_the_remote_frames_as_its_note():
    error = made(pickled=pickle.dumps(KeyError("lr")))
    assert isinstance(error, KeyError)
    assert error.__notes__ == ["in the session digits on algo-1:\nTraceback …\nKeyError: 'lr'"]


@pytest.mark.parametrize("pickled", [b"", b"nonsense", pickle.dumps("no exception"), pickle.dumps(SystemExit(3))])
def test_one_that_cannot_be_made_anew_is_told_whole(pickled):
    error = made(pickled=pickled)
    assert isinstance(error, CallFailed)
    assert str(error).startswith("KeyError: 'lr'\n\nin the session digits on algo-1:\nTraceback")
    assert (error.error_type, error.remote_traceback) == ("KeyError", ERROR.traceback)


def test_what_raysm_refused_is_the_same_error_here_without_frames():
    refused = RemoteError(type="InvalidRequest", message="there is no instance 'algo-9'")
    error = made(refused, pickle.dumps(InvalidRequest(refused.message)))
    assert isinstance(error, InvalidRequest)
    assert not hasattr(error, "__notes__")


def test_a_death_is_one_line_and_an_interruption_cancels():
    assert str(made(RemoteError(type="WorkerDied", message="it died"))) == "WorkerDied: it died"
    error = made(RemoteError(type="KeyboardInterrupt", message="", cancelled=True))
    assert isinstance(error, CallCancelled)
    assert str(error) == "train was interrupted"


# Many calls at once


@pytest.fixture(scope="module")
def session(server, tmp_path_factory):
    with connected_session(tmp_path_factory.mktemp("job"), server) as one:
        yield one


def test_calls_are_yielded_as_they_end(session, tmp_path):
    def wait(gate):
        while not gate.exists():
            time.sleep(0.01)
        return "late"

    late, early = session.submit(wait, tmp_path / "gate"), session.submit(abs, -1)
    ended = raysm.as_completed([late, early, late])
    assert next(ended) is early
    with pytest.raises(NotDone, match=r"1 of 2 calls .*0\.1 s"):
        list(raysm.as_completed([late, early], timeout=0.1))
    (tmp_path / "gate").touch()
    assert [call.result() for call in ended] == ["late"]


def test_all_values_come_in_the_form_of_the_calls(session):
    calls = [session.submit(abs, -number) for number in range(5)]
    assert session.gather(calls) == raysm.gather(iter(calls)) == [*range(5)]
    assert session.gather({"a": calls[1], "b": [calls[2]]}) == {"a": 1, "b": [2]}
    assert session.gather(calls[3]) == 3
    calls.append(session.submit(divmod, 1, 0))
    with pytest.raises(ZeroDivisionError):
        session.gather(calls)
    assert isinstance(session.gather(calls, return_exceptions=True)[-1], ZeroDivisionError)


def test_a_callback_is_called_at_the_end_and_at_once_after_it_and_may_call_the_session(session):
    call, heard = session.submit(time.sleep, 0.1), []
    call.add_done_callback(lambda call: heard.append(session.run(abs, -1)))
    until(lambda: heard == [1])
    call.add_done_callback(heard.append)
    until(lambda: heard == [1, call])


def test_progress_is_a_bar_on_one_line(session):
    out = io.StringIO()
    raysm.progress([session.submit(time.sleep, 0.1), session.submit(divmod, 1, 0)], out)
    *_, last = out.getvalue().split("\r")
    assert "2/2, 1 failed" in last
    assert out.getvalue().count("\n") == 1


def test_progress_of_a_map_is_a_bar_and_leaves_its_results(session):
    out, squares = io.StringIO(), session.map(pow, [2, 3, 4], [2, 2, 2])
    raysm.progress(squares, out)
    assert "3/3, " in out.getvalue().split("\r")[-1]
    assert out.getvalue().count("\n") == 1
    assert list(squares) == [4, 9, 16]


def test_progress_of_a_map_counts_a_failure_which_is_raised_where_its_result_would_come(session):
    out, quotients = io.StringIO(), session.map(divmod, iter([1, 7]), [1, 0])
    raysm.progress(quotients, out)
    assert "2, 1 failed" in out.getvalue().split("\r")[-1]
    assert next(quotients) == (1, 0)
    with pytest.raises(ZeroDivisionError):
        next(quotients)


@pytest.mark.parametrize("function", [raysm.gather, raysm.progress, lambda calls: next(raysm.as_completed(calls))])
def test_an_element_that_is_no_call_is_refused(function):
    with pytest.raises(InvalidRequest, match="got 3"):
        function([3])
