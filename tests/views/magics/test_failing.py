"""How a notebook shows what went wrong."""

import pytest

from raysm.contract.session import RemoteError
from raysm.errors import CallFailed, SessionEnded
from raysm.views.magics.failing import in_one_line, interrupted, remote
from tests.support.fake_sessions import FakeCall

TRACEBACK = (
    'Traceback (most recent call last):\n  File "Cell In[3]", line 2, in <module>\n    1/0\nZeroDivisionError: no'
)


def told(kind="ZeroDivisionError", traceback=TRACEBACK):
    return RemoteError(type=kind, message="no", traceback=traceback)


def test_an_exception_of_the_session_keeps_its_class_and_has_the_sessions_frames():
    error = ZeroDivisionError("no")
    shown = remote(FakeCall(error=error, told=told()), error)
    assert shown is error
    assert shown._render_traceback_() == TRACEBACK.splitlines()


@pytest.mark.parametrize("error", [SyntaxError("no"), ExceptionGroup("no", [ValueError()])])
def test_one_that_ipython_would_draw_itself_is_another(error):
    shown = remote(FakeCall(error=error, told=told(type(error).__name__)), error)
    assert isinstance(shown, CallFailed)
    assert shown._render_traceback_() == TRACEBACK.splitlines()


def test_one_without_frames_is_its_headline():
    error = CallFailed("SystemExit: 3", error_type="SystemExit")
    assert remote(FakeCall(error=error, told=told("SystemExit", "")), error)._render_traceback_() == ["SystemExit: no"]


def test_one_that_takes_no_attribute_is_another():
    class Slotted(Exception):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    error = Slotted("no")
    shown = remote(FakeCall(error=error, told=told("Slotted")), error)
    assert isinstance(shown, CallFailed)
    assert shown._render_traceback_() == TRACEBACK.splitlines()


def test_a_connection_that_failed_is_one_line():
    error = SessionEnded("the session digits has ended: it was idle")
    shown = remote(FakeCall(error=error), error)
    assert shown._render_traceback_() == ["SessionEnded: the session digits has ended: it was idle"]


def test_an_error_that_is_none_of_raysms_stays_as_it_is():
    assert not hasattr(in_one_line(ValueError("own")), "_render_traceback_")


def test_an_interrupt_says_that_the_session_is_still_there():
    (line,) = interrupted("digits")._render_traceback_()
    assert line.startswith("KeyboardInterrupt: ")
    assert "digits" in line
