"""Programs without a session's token: browsers, other users of the machine, and whatever listens at its port later."""

import asyncio
import contextlib
import http.client
import logging
import socket

import pytest

from raysm.contract.connections import GREETING
from raysm.workloads.session.door import MAX_STRANGERS
from tests.support.sessions import TOKEN, proved, served
from tests.support.strangers import asked_by_another_user, needs_two_users


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


def answered(server, path):
    """Return status, headers and body of one request."""

    async def go():
        async with proved(server) as session, session.get(f"http://127.0.0.1:{server.port}{path}") as got:
            return got.status, got.headers, await got.text()

    return asyncio.run(go())


@pytest.mark.parametrize("header", ["X: " + "x" * 64, f"Authorization: Bearer {TOKEN}", f"Cookie: token={TOKEN}"])
def test_a_browser_is_never_answered_whatever_it_sends(server, header):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
        stranger.sendall(f"GET /session HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n".encode())
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := stranger.recv(4096):
                heard += piece
    # The greeting is the same for every caller, but for the fresh number in it.
    assert heard.startswith(GREETING)
    assert len(heard) == len(GREETING) + 32


def test_no_answer_sets_a_cookie_or_has_the_token(server):
    for path in ("/session", "/nowhere"):
        _, headers, body = answered(server, path)
        assert "Set-Cookie" not in headers
        assert TOKEN not in f"{headers} {body}"


@needs_two_users
def test_another_user_gets_nothing_and_sees_no_token_in_ps(server):
    answers, shown = asked_by_another_user(server.port, ("GET", "/session", {}), ("GET", "/events", {}))
    assert [status for status, _ in answers] == [http.client.BadStatusLine.__name__] * 2
    assert "pytest" in shown
    assert TOKEN not in shown


def test_the_token_is_in_no_log(server, caplog):
    caplog.set_level(logging.DEBUG)
    assert answered(server, "/session")[0] == 200
    assert TOKEN not in caplog.text


def test_strangers_who_say_nothing_do_not_keep_clients_out(server):
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(MAX_STRANGERS + 20)
        ]
        assert answered(server, "/session")[0] == 200
        # The oldest one is gone: its greeting is all that it gets.
        strangers[0].settimeout(5)
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := strangers[0].recv(4096):
                heard += piece
        assert len(heard) <= len(GREETING) + 32
