"""JupyterLab of a session's head at an address of this machine, with a program that stands in for it."""

import asyncio
import json

import aiohttp
import pytest

from raysm.core.protocol.connections import open_to_own
from raysm.errors import InvalidRequest
from raysm.features.session.notebook.jupyter import POLICY, open_jupyter
from tests.support import fake_jupyter
from tests.support.sessions import connected_session, served
from tests.support.stub_job import TOKEN
from tests.support.waiting import until


@pytest.fixture
def server(tmp_path):
    with served(tmp_path, jupyter=fake_jupyter.COMMAND) as running:
        yield running


@pytest.fixture
def session(server, tmp_path):
    with connected_session(tmp_path, server) as handle:
        yield handle


@pytest.fixture
def jupyter(session):
    with session.jupyter() as shown:
        yield shown


def asked(url, method="GET", **headers):
    async def go():
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, url, headers=headers) as answer,
        ):
            return answer.status, answer.headers, await answer.read()

    return asyncio.run(go())


def test_its_pages_are_asked_for_with_the_jobs_token_which_neither_browser_nor_jupyter_sees(
    jupyter,
):
    status, headers, body = asked(jupyter.url, Authorization="Bearer browser")
    told = json.loads(body)
    # Jupyter knows its pages by the path below which the browser sees them.
    assert (status, told["path"]) == (
        200,
        jupyter.url.removeprefix(f"http://127.0.0.1:{jupyter._server.port}"),
    )
    assert jupyter.url.endswith("/lab")
    assert TOKEN not in f"{body}{headers}{jupyter.url}"
    assert "Authorization" not in told["headers"]
    assert headers["Content-Security-Policy"] == POLICY
    assert "Set-Cookie" not in headers


def test_kernels_are_reached_by_websockets(jupyter):
    async def go():
        async with aiohttp.ClientSession() as client:
            async with client.ws_connect(jupyter.url.removesuffix("lab") + "channels") as socket:
                await socket.send_str("hello")
                return (await socket.receive()).data

    assert asyncio.run(go()) == "hello"


@pytest.mark.parametrize(
    ("prefix", "headers", "status"),
    [
        ("guessed", {}, 404),
        (None, {"Origin": "http://evil.example"}, 403),
        (None, {"Host": "evil.example"}, 421),
    ],
    ids=["path", "origin", "host"],
)
def test_strangers_get_nothing(jupyter, prefix, headers, status):
    secret = jupyter._server.prefix
    assert asked(jupyter.url.replace(secret, prefix or secret), **headers)[0] == status


def test_it_is_closed_alone_and_gone_with_its_session(session, server):
    first = session.jupyter()
    first.close()
    with pytest.raises(aiohttp.ClientConnectionError):
        asked(first.url)
    with session.jupyter() as second:
        session.close()
        until(server.is_over.is_set)
        assert asked(second.url)[0] == 502


def test_where_it_does_not_start_nothing_stays_open():
    def refuse(base):
        raise InvalidRequest("no JupyterLab")

    with pytest.raises(InvalidRequest, match="no JupyterLab"):
        open_jupyter(
            "digits", address=lambda: "127.0.0.1:1", open_connection=open_to_own, start=refuse
        )
