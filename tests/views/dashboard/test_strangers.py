"""Who has not been given the dashboard's address: another user of the machine, and whoever guesses or replays."""

import asyncio
import contextlib
import logging
import socket
from functools import partial
from types import SimpleNamespace

import pytest

from raysm.views.dashboard.live import LiveSite
from raysm.views.dashboard.server import DashboardServer
from raysm.views.dashboard.upstream import Upstream
from tests.support.another_user import thief
from tests.support.dashboard_head import TOKEN, Answer, way_to
from tests.support.strangers import asked_by_another_user, needs_two_users
from tests.views.dashboard.test_live import Watched, left_nothing

COOKIE = f"ray-authentication-token={TOKEN}"


@pytest.fixture
def server(head, tmp_path):
    site = partial(LiveSite, "digits-1", Watched(), way=partial(way_to, head), token=TOKEN, cache=tmp_path)
    server = DashboardServer(lambda: site(ended=left_nothing))
    yield server
    server.close()


def test_a_guess_that_is_nearly_right_finds_nothing(server, head, ask):
    prefix = server.prefix
    guesses = [prefix[:-1], f"{prefix}x", prefix.swapcase(), f"%{ord(prefix[0]):x}{prefix[1:]}", f"x/../{prefix}"]
    assert [ask(server.port, f"/{guess}/api/jobs/")[0] for guess in guesses] == [404] * len(guesses)
    assert "api/jobs/" not in head.paths()


@pytest.mark.parametrize("headers", [{"Cookie": COOKIE}, {"Authorization": f"Bearer {TOKEN}"}])
def test_a_replayed_cookie_or_token_opens_nothing_without_the_path(server, head, ask, headers):
    assert ask(server.port, "/api/jobs/", **headers)[::2] == (404, b"there is nothing here")
    assert "api/jobs/" not in head.paths()


@needs_two_users
def test_another_user_gets_nothing_and_sees_neither_path_nor_token_in_ps(server, head):
    asked = [("GET", "/", {}), ("GET", "/api/jobs/", {"Cookie": COOKIE}), ("POST", "/api/jobs/", {})]
    answers, shown = asked_by_another_user(server.port, *asked)
    assert answers == [[404, "there is nothing here"]] * len(asked)
    assert "pytest" in shown
    assert server.prefix not in shown
    assert TOKEN not in shown
    assert "api/jobs/" not in head.paths()


def test_neither_the_path_nor_the_token_is_in_a_log_or_known_to_the_head(server, head, ask, caplog):
    caplog.set_level(logging.DEBUG)
    head.answers["api/jobs/"] = Answer(b"[]")
    url = f"/{server.prefix}/api/jobs/"
    assert ask(server.port, url, Referer=f"http://127.0.0.1:{server.port}{url}")[0] == 200
    assert ask(server.port, f"/{server.prefix}/nowhere")[0] == 404
    assert server.prefix not in caplog.text
    assert TOKEN not in caplog.text
    assert not any(server.prefix in f"{asked.path} {asked.headers}" for asked in head.requests)


@needs_two_users
def test_the_token_is_not_sent_to_a_port_that_another_user_has_once_the_way_is_gone(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = SimpleNamespace(address=f"127.0.0.1:{port}")

    async def read():
        upstream = Upstream(lambda: contextlib.nullcontext(gone), TOKEN)
        try:
            await upstream.read("api/version")
        finally:
            await upstream.close()

    with thief(port) as other:
        other.await_port(port)
        with pytest.raises(ConnectionError, match=rf"another user \(uid 65534\) listens at 127.0.0.1, port {port}"):
            asyncio.run(read())
        assert other.end() == ""
