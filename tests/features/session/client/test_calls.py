"""Calls as futures, and their outcomes."""

import asyncio
import io
import json
import pickle
import sys
import time
import types

import cloudpickle
import pytest

import raysm
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.request.codec import to_json
from raysm.errors import CallCancelled, CallFailed, InvalidRequest, NotDone, SessionEnded
from raysm.features.session.client.calls import (
    KEPT_CHARACTERS,
    Call,
    CallContext,
    load_error,
    load_value,
)
from raysm.features.session.client.cell_result import collect_result, show_display
from raysm.features.session.client.wire import NoSuchCall
from raysm.features.session.protocol import (
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
    request = CallRequest(kind=CALL, name=name, client="me", python=Versions.here().pickle_version)
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
    for wait in (call.result, call.exception):
        with pytest.raises(NotDone, match=r"^f .*0\.01 s"):
            wait(timeout=0.01)
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


INTERRUPTED = RemoteError(type="KeyboardInterrupt", message="it was interrupted", cancelled=True)


class FakeWire:
    """A connection to a session that gives these answers about a call, and then interrupts it when it is asked to.

    Attributes:
        error: Raised by requests about the call.
        unknown: How many requests to interrupt come before the call itself arrives.
        sent: For each question, whether the call was sent with it.
        interrupts, messages: What the session received.
    """

    def __init__(self, *answers, error=None, unknown=0):
        self.answers, self.error, self.unknown = list(answers), error, unknown
        self.sent, self.interrupts, self.messages = [], [], []
        self.interrupted = asyncio.Event()

    async def call(self, id, wait_s, request, body=()):
        self.sent.append(request is not None)
        if not self.answers:
            await self.interrupted.wait()
            return answer(DONE, error=INTERRUPTED)
        following = self.answers.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    async def json(self, method, path, **how):
        raise self.error

    async def request(self, method, path, **how):
        self.interrupts.append(path)
        if len(self.interrupts) <= self.unknown:
            raise NoSuchCall("there is no such call")
        self.interrupted.set()
        if self.error is not None:
            raise self.error

    async def send_message(self, message):
        self.messages.append(message)


@pytest.fixture
def loop():
    running = LoopThread("test")
    yield running
    running.close()


ENDED = SessionEnded("the session digits has ended: it was closed")


def answer(state, value=None, output_end=0, error=None):
    status = CallStatus(id="one", kind=CALL, name="f", state=state, output_end=output_end)
    outcome = Outcome(pickled=pickle.dumps(value), error=error)
    return to_json(status), outcome.encode() if state == DONE else b""


def call_over(wire, loop, **options):
    return Call("one", "f", CallContext(loop, wire, "digits"), **options)


def sent_over(wire, loop, **options):
    call = call_over(wire, loop, **options)
    loop.start(call.send(CallRequest(kind=CALL, name="f"), [b"body"]))
    return call


def test_a_call_is_sent_once_and_then_asked_for_until_it_is_done(loop):
    wire = FakeWire(answer(WAITING), answer(RUNNING), answer(DONE, 3))
    call = sent_over(wire, loop)
    assert call.result(timeout=60) == 3
    assert not call.cancelled()
    assert wire.sent == [True, False, False]
    # The session may now forget the outcome.
    until(lambda: wire.messages == [{"delivered": "one"}])


def test_a_value_that_has_arrived_is_returned_though_the_output_is_lost_with_the_session(
    loop, caplog
):
    call = sent_over(FakeWire(answer(DONE, 3, output_end=9), error=ENDED), loop)
    assert call.result(timeout=60) == 3
    assert "output of f is lost: the session digits has ended" in caplog.text


def test_a_call_of_a_session_that_ends_raises_that_and_is_not_shown_any_longer(loop):
    call = sent_over(FakeWire(answer(RUNNING), ENDED), loop)
    call.show(out=io.StringIO())
    assert call.exception(timeout=60) is ENDED
    with pytest.raises(SessionEnded):
        call.result()
    assert not call.cancelled()
    assert repr(call).endswith(": failed>")


def test_a_call_whose_connection_is_closed_here_ends_for_its_waiters(loop):
    call = call_over(FakeWire(), loop)
    sending = loop.start(call.send(CallRequest(kind=CALL, name="f"), [b"body"]))
    assert not call.wait(0)
    sending.cancel()
    assert call.wait(60)
    with pytest.raises(
        CallCancelled, match="connection was closed; the session may still work on it"
    ):
        call.result()


def test_a_call_that_is_cancelled_before_it_has_arrived_is_interrupted_as_soon_as_it_has(loop):
    wire = FakeWire(unknown=2)
    call = sent_over(wire, loop)
    assert call.cancel() is True
    assert wire.interrupts == ["/calls/one/interrupt"] * 3
    with pytest.raises(CallCancelled):
        call.result(timeout=60)


def test_a_call_that_has_not_arrived_waits_and_has_no_output(loop):
    call = call_over(FakeWire(error=NoSuchCall("there is no such call")), loop)
    assert (call.status.state, call.status.name) == (WAITING, "f")
    assert call.logs() == ""


@pytest.mark.parametrize(
    "wait",
    [
        Call.result,
        Call.exception,
        Call.wait,
        lambda call, timeout: next(raysm.as_completed([call], timeout)),
    ],
)
def test_a_timeout_that_is_no_number_is_refused(loop, wait):
    call = call_over(FakeWire(), loop)
    with pytest.raises(InvalidRequest, match="timeout is a number of seconds, got 'x'"):
        wait(call, timeout="x")


def test_the_status_of_a_call_that_has_ended_is_known_without_a_question(loop):
    call = sent_over(FakeWire(answer(DONE, 3), error=ENDED), loop)
    assert call.result(timeout=60) == 3
    assert (call.status.id, call.status.state) == ("one", DONE)


def test_output_is_shown_in_the_streams_of_this_process_unless_others_are_given(loop, capsys):
    call = call_over(FakeWire(answer(DONE)), loop)
    shown = json.dumps({"data": {"text/plain": "a picture"}, "metadata": {}})
    for start, stream, text in [
        (0, "stdout", "out\n"),
        (4, "stderr", "err\n"),
        (8, DISPLAY, shown),
    ]:
        call.on_output(start, stream, text)
    loop.run(call.send(None), 60)
    call.show()
    assert tuple(capsys.readouterr()) == ("out\na picture\n", "err\n")


class CtrlC(io.StringIO):
    def write(self, text):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [None, ENDED])
def test_ctrl_c_while_a_call_is_shown_interrupts_it(loop, error):
    wire = FakeWire(error=error)
    call = sent_over(wire, loop)
    call.on_output(0, "stdout", "hello")
    with pytest.raises(KeyboardInterrupt):
        call.show(out=CtrlC())
    assert wire.interrupts == ["/calls/one/interrupt"]
    # Its last output has come before the user's next command.
    assert call.cancelled()


def test_a_call_that_prints_nothing_for_long_is_shown_until_it_ends(line):
    call = begun(line, time.sleep, 1.2)
    call.show(out=io.StringIO())
    assert call.result(timeout=60) is None


def test_output_that_a_new_connection_brings_again_is_shown_once(loop):
    out, err = io.StringIO(), io.StringIO()
    call = call_over(FakeWire(answer(DONE, output_end=8)), loop, is_cell=True)
    call.on_output(0, "stdout", "abc")
    for start, stream, text in [
        (0, "stdout", "abc"),
        (0, "stdout", "abcde"),
        (5, "stderr", "fgh"),
        (2, "stdout", "cde"),
    ]:
        call.on_output(start, stream, text)
    loop.run(call.send(None), 60)
    call.show(out=out, err=err)
    assert (out.getvalue(), err.getvalue()) == ("abcde", "fgh")
    assert call.result().text == "abcdefgh"


def test_the_result_of_a_cell_has_the_end_of_an_output_that_is_too_long(loop):
    half = KEPT_CHARACTERS // 2
    call = call_over(FakeWire(answer(DONE, output_end=3 * half)), loop, is_cell=True)
    for number, letter in enumerate("abc"):
        call.on_output(number * half, "stdout", letter * half)
    loop.run(call.send(None), 60)
    assert call.result().text == "b" * half + "c" * half


ERROR = RemoteError(
    type="KeyError", message="'lr'", traceback="Traceback …\nKeyError: 'lr'\n", host="algo-1"
)


def made(error=ERROR, pickled=b""):
    return load_error(Outcome(error=error, pickled=pickled), "train", "digits")


def test_a_value_whose_class_is_not_here_is_named_with_the_remedy():
    pickled = pickle.dumps(ERROR).replace(
        b"raysm.features.session.protocol", b"raysm.features.session.absences"
    )
    with pytest.raises(CallFailed, match="train .*'raysm.features.session.absences'"):
        load_value(Outcome(pickled=pickled), "train")


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_a_value_whose_own_code_fails_here_is_an_error_and_not_none():
    with pytest.raises(CallFailed, match="train cannot be read here: ValueError") as caught:
        load_value(Outcome(pickled=pickle.dumps(Unreadable())), "train")
    assert caught.value.error_type == "ValueError"


def display(text, **more):
    return DISPLAY, json.dumps(
        {"data": {"text/plain": text}, "metadata": {}, "transient": {}, "update": False} | more
    )


def test_the_result_of_a_cell_has_all_that_it_printed_and_showed_in_order():
    pieces = [("stdout", "one\n"), display("a figure"), ("stderr", "two"), ("stderr", "\n")]
    result = collect_result(
        pieces, Outcome(shown={"text/plain": "21", "text/html": "<b>21</b>"}, metadata={"m": 1})
    )
    forms = {"data": {"text/plain": "21", "text/html": "<b>21</b>"}, "metadata": {"m": 1}}
    # In the form of a notebook's file, to which no "transient" may be written.
    assert result.outputs == [
        {"output_type": "stream", "name": "stdout", "text": "one\n"},
        {"output_type": "display_data", "data": {"text/plain": "a figure"}, "metadata": {}},
        {"output_type": "stream", "name": "stderr", "text": "two\n"},
        {"output_type": "execute_result", "execution_count": None, **forms},
    ]
    assert result.text == "one\na figure\ntwo\n21\n"
    assert repr(result) == repr(result.result) == "21"
    assert result.result._repr_mimebundle_() == (
        {"text/plain": "21", "text/html": "<b>21</b>"},
        {"m": 1},
    )


def test_a_display_is_updated_in_its_place_and_outputs_are_cleared():
    id = {"transient": {"display_id": "x"}}
    pieces = [display("old", **id), ("stdout", "printed"), display("new", update=True, **id)]
    assert collect_result(pieces, Outcome()).text == "new\nprinted"
    cleared = [*pieces, (DISPLAY, '{"clear": true}')]
    assert collect_result(cleared, Outcome()).text == "new\nprinted"
    assert (
        collect_result([*cleared, ("stdout", "after"), ("stderr", " that")], Outcome()).text
        == "after that"
    )
    assert collect_result([*pieces, (DISPLAY, '{"clear": false}')], Outcome()).outputs == []


def test_outside_of_a_notebook_a_display_is_its_text(capsys):
    show_display({"data": {"text/plain": "<b>&"}, "metadata": {}}, sys.stdout)
    show_display({"data": {"text/plain": "again"}, "metadata": {}, "update": True}, sys.stdout)
    show_display({"clear": True}, sys.stdout)
    assert capsys.readouterr().out == "<b>&\n"


class Publisher:
    """IPython's publisher of a notebook, which keeps what it is asked to show."""

    def __init__(self):
        self.shown = []

    def publish(self, data, metadata, *, transient, update):
        self.shown.append((data, metadata, transient, update))

    def clear_output(self, wait):
        self.shown.append(("cleared", wait))


@pytest.fixture
def notebook(monkeypatch):
    publisher = Publisher()
    shell = types.SimpleNamespace(display_pub=publisher)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    return publisher


def test_in_a_notebook_displays_are_shown_updated_and_cleared(notebook, capsys):
    first = {"data": {"text/plain": "1"}, "metadata": {"m": 1}, "transient": {"display_id": "x"}}
    for bundle in (first, first | {"update": True}, {"clear": True}):
        show_display(bundle, sys.stdout)
    shown = first["data"], first["metadata"], first["transient"]
    assert notebook.shown == [(*shown, False), (*shown, True), ("cleared", True)]
    assert capsys.readouterr().out == ""


def test_a_notebook_displays_the_result_of_a_cell_once_and_nothing_if_it_has_none(notebook):
    collect_result([], Outcome())._ipython_display_()
    assert notebook.shown == []
    collect_result(
        [display("a figure")], Outcome(shown={"text/html": "<b>"}, metadata={"m": 1})
    )._ipython_display_()
    assert notebook.shown == [({"text/html": "<b>"}, {"m": 1}, {}, False)]


def test_an_exception_is_made_anew_with_the_remote_frames_as_its_note():
    error = made(pickled=pickle.dumps(KeyError("lr")))
    assert isinstance(error, KeyError)
    assert error.__notes__ == ["in the session digits on algo-1:\nTraceback …\nKeyError: 'lr'"]


@pytest.mark.parametrize(
    "pickled", [b"", b"nonsense", pickle.dumps("no exception"), pickle.dumps(SystemExit(3))]
)
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
    soon = session.submit(time.sleep, 0.2)
    assert list(raysm.as_completed([soon], timeout=60)) == [soon]


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


def test_progress_is_drawn_in_stderr_unless_another_stream_is_given(session, capsys):
    raysm.progress(session.submit(abs, -1))
    assert capsys.readouterr().err.endswith(" s\n")


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


@pytest.mark.parametrize(
    "function", [raysm.gather, raysm.progress, lambda calls: next(raysm.as_completed(calls))]
)
@pytest.mark.parametrize("element", [3, "call"])
def test_an_element_that_is_no_call_is_refused(function, element):
    with pytest.raises(InvalidRequest, match=f"got {element!r}"):
        function([element])
