"""What every part of a session's handle needs."""

import pytest

import raysm
from raysm.client.session.connected import ConnectedSession
from raysm.errors import SessionEnded


@pytest.mark.parametrize("name", ["name", "job", "state"])
def test_what_is_known_of_an_open_session_is_not_known_of_another(name):
    with pytest.raises(SessionEnded, match=r"the session digits is not open: start\(\) it"):
        getattr(raysm.Session(name="digits"), name)


def test_one_that_was_given_no_name_has_none_in_the_message():
    with pytest.raises(SessionEnded, match="^the session is not open"):
        raysm.Session().run(print)


def test_a_handle_that_is_not_open_is_shown_as_such_and_its_name_is_text():
    session = raysm.Session(name="digits")
    session._name = "<b>"
    assert isinstance(session, ConnectedSession)
    assert session._repr_html_() == "<p>&lt;session &lt;b&gt;: not open&gt;</p>"
