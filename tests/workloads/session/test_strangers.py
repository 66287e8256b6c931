"""Who has not been given a session's token: pages of a browser, another user of the machine, whoever guesses."""

import asyncio
import logging
import socket

import aiohttp
import pytest

from tests.support.sessions import TOKEN, served
from tests.support.strangers import asked_by_another_user, needs_two_users

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


def answered(server, method, path, headers):
    """Return status, headers and body of one request."""

    async def go():
        async with aiohttp.ClientSession() as session:
            async with session.request(method, f"http://127.0.0.1:{server.port}{path}", headers=headers) as got:
                return got.status, got.headers, await got.text()

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"/session?token={TOKEN}", {}),
        (f"/{TOKEN}/session", {}),
        ("/session", {"Cookie": f"token={TOKEN}; ray-authentication-token={TOKEN}"}),
        ("/session", {"X-Ray-Authorization": f"Bearer {TOKEN}"}),
        ("/session", {"Host": "evil.example", "Origin": "http://evil.example"}),
    ],
)
def test_the_token_counts_in_its_own_header_alone_so_that_no_page_sends_it_unasked(server, path, headers):
    status, _, body = answered(server, "GET", path, headers)
    assert status == 401
    assert TOKEN not in body


def test_a_header_that_is_no_text_is_refused_as_every_wrong_one_is(server, caplog):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
        stranger.sendall(b"GET /session HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \xff\r\nConnection: close\r\n\r\n")
        assert stranger.makefile("rb").readline() == b"HTTP/1.1 401 Unauthorized\r\n"
    assert caplog.text == ""


def test_a_page_of_another_origin_is_allowed_nothing_by_a_browsers_rules(server):
    # Before a request with a header of its own a browser asks; without these answers it does not send it:
    # https://developer.mozilla.org/docs/Web/HTTP/Guides/CORS
    asking = {"Origin": "http://evil.example", "Access-Control-Request-Headers": "authorization"}
    for method, headers in (("OPTIONS", asking), ("GET", asking), ("GET", asking | BEARER)):
        _, got, _ = answered(server, method, "/session", headers)
        assert not [name for name in got if name.lower().startswith("access-control-")]


def test_no_answer_sets_a_cookie_or_has_the_token(server):
    for path in ("/session", "/nowhere"):
        _, headers, body = answered(server, "GET", path, BEARER)
        assert "Set-Cookie" not in headers
        assert TOKEN not in f"{headers} {body}"


@needs_two_users
def test_another_user_gets_nothing_and_sees_no_token_in_ps(server):
    asked = [("GET", "/session", {}), ("POST", "/calls/x", {"Authorization": "Bearer "}), ("GET", "/events", {})]
    answers, shown = asked_by_another_user(server.port, *asked)
    assert [status for status, _ in answers] == [401] * len(asked)
    assert "pytest" in shown
    assert TOKEN not in shown


def test_the_token_is_in_no_log(server, caplog):
    caplog.set_level(logging.DEBUG)
    assert answered(server, "GET", "/session", BEARER)[0] == 200
    assert TOKEN not in caplog.text
