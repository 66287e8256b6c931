"""One cell on several instances."""

import io

import pytest

from raysm.contract.session import RemoteError
from raysm.views.magics.several import Labelled, Several, await_all
from tests.support.fake_sessions import FakeCall, FakeSession


def test_each_line_has_its_instance_before_it_and_each_value_too(capsys):
    calls = Several({"algo-1": FakeCall(3, printed="one\ntwo"), "algo-2": FakeCall(4, printed="three\n")})
    values = await_all(FakeSession(), calls)
    assert capsys.readouterr().out == "[algo-1] one\n[algo-1] two\n[algo-2] three\n"
    assert repr(values) == "algo-1: 3\nalgo-2: 4"


def test_where_nothing_is_shown_there_is_no_value():
    assert await_all(FakeSession(), Several({"algo-1": FakeCall(), "algo-2": FakeCall()})) == {}


def test_a_failure_is_raised_when_all_have_ended_and_names_all_that_failed(capsys):
    told = RemoteError(type="ValueError", message="no", traceback="Traceback\nValueError: no")
    failing = FakeCall(error=ValueError("no"), told=told)
    calls = Several({"algo-1": failing, "algo-2": FakeCall(printed="well\n"), "algo-3": failing})
    with pytest.raises(ValueError, match="no") as raised:
        await_all(FakeSession(), calls)
    assert raised.value._render_traceback_() == ["Traceback", "ValueError: no"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("[algo-2] well\n", "failed on algo-1, algo-3\n")


def test_an_interrupt_is_for_all_of_them():
    calls = Several({"algo-1": FakeCall(interrupted=True), "algo-2": FakeCall()})
    with pytest.raises(KeyboardInterrupt) as raised:
        await_all(FakeSession(), calls)
    assert calls["algo-2"].is_cancelled
    assert len(raised.value._render_traceback_()) == 1


def test_a_line_that_comes_in_pieces_has_one_label():
    stream = io.StringIO()
    labelled = Labelled("algo-2", stream)
    for text in ("a", "b\nc", "", "\n"):
        labelled.write(text)
    labelled.end()
    labelled.flush()
    assert stream.getvalue() == "[algo-2] ab\n[algo-2] c\n"
