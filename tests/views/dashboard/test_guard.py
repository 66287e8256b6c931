"""Who is let in, and who is not."""

import pytest

from raysm.views.dashboard.guard import Guard, new_prefix

GUARD = Guard(prefix="secret", port=8000)
OWN = {"Host": "127.0.0.1:8000"}


def status(**headers):
    refusal = GUARD.refusal({name.replace("_", "-"): value for name, value in headers.items()})
    return None if refusal is None else refusal.status


def test_two_prefixes_are_never_the_same_and_are_long():
    assert new_prefix() != new_prefix()
    assert len(new_prefix()) >= 32


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("/secret/", ""),
        ("/secret", ""),
        ("/secret/api/jobs/", "api/jobs/"),
        ("/secret/a%20b", "a%20b"),
        ("/secre/", None),
        ("/secrets/", None),
        ("/", None),
        ("/other/secret/", None),
        ("/ü/", None),
    ],
)
def test_only_what_lies_below_the_prefix_is_there(path, rest):
    assert GUARD.below(path) == rest


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000"])
def test_it_answers_to_its_own_names(host):
    assert status(Host=host) is None


@pytest.mark.parametrize("host", ["evil.example:8000", "127.0.0.1.evil.example:8000", "127.0.0.1", "localhost:1", ""])
def test_a_page_that_made_its_own_name_lead_here_is_refused(host):
    assert status(Host=host) == 421


def test_a_jupyter_server_passes_its_own_name_on():
    assert status(Host="hub.example", X_Forwarded_Context="/user/x/proxy/8000") is None
    assert status(Host="hub.example:8888", X_Forwarded_Context="/proxy/8000") is None


def test_a_browser_that_asks_the_port_itself_cannot_pass_as_a_jupyter_server():
    assert status(Host="evil.example:8000", X_Forwarded_Context="/proxy/8000") == 421


def test_another_origin_is_refused_and_the_own_one_is_not():
    assert status(**OWN, Origin="http://127.0.0.1:8000") is None
    assert status(**OWN, Origin="http://127.0.0.1:9000") == 403
    assert status(**OWN, Origin="http://evil.example") == 403
    assert status(**OWN, Origin="null") == 403


def test_a_link_of_another_page_may_be_followed_and_a_script_of_it_gets_nothing():
    assert status(**OWN, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate") is None
    assert status(**OWN, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors") == 403
    assert status(**OWN, Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors") is None
