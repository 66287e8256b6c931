"""What a call's outcome becomes here."""

import pickle

import pytest

from raysm.client.session.outcomes import Shown, error_of, value_of
from raysm.contract.session import Outcome, RemoteError
from raysm.errors import CallCancelled, CallFailed, InvalidRequest

ERROR = RemoteError(type="KeyError", message="'lr'", traceback="Traceback …\nKeyError: 'lr'\n", host="algo-1")


def made(error=ERROR, pickled=b""):
    return error_of(error, pickled, "train", "digits")


def test_a_value_is_unpickled_and_nothing_is_none():
    assert value_of(Outcome(pickled=pickle.dumps([1])), "f") == [1]
    assert value_of(Outcome(), "f") is None


def test_a_value_whose_class_is_not_here_is_named_with_the_remedy():
    pickled = pickle.dumps(ERROR).replace(b"raysm.contract.session", b"raysm.contract.absence")
    with pytest.raises(CallFailed, match="the value of train cannot be read here: ModuleNotFoundError"):
        value_of(Outcome(pickled=pickled), "train")


def test_what_a_cell_shows_is_shown_as_it_would_be_there():
    shown = value_of(Outcome(shown={"text/plain": "21", "text/html": "<b>21</b>"}), "a cell")
    assert isinstance(shown, Shown)
    assert repr(shown) == "21"
    assert shown._repr_mimebundle_()["text/html"] == "<b>21</b>"


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


def test_a_death_is_told_in_one_line():
    assert str(made(RemoteError(type="WorkerDied", message="it died"))) == "WorkerDied: it died"


def test_what_was_interrupted_is_cancelled():
    error = made(RemoteError(type="KeyboardInterrupt", message="", cancelled=True))
    assert isinstance(error, CallCancelled)
    assert str(error) == "train was interrupted"
