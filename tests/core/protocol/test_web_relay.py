"""Requests that are passed on to another server, WebSockets too."""

import asyncio
import contextlib
import json

import aiohttp
from aiohttp import web

from raysm.core.protocol.web_relay import open_relay, relay
from tests.support.fake_jupyter import application

OWN = {"Authorization": "Bearer job"}


@contextlib.asynccontextmanager
async def relaying(tmp_path, *, there=True):
    """Yield the address of a server that passes all on to one at a Unix socket."""
    socket, runners = tmp_path / "s", []

    async def serve(app, site):
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        await site(runner).start()
        return runner

    if there:
        await serve(
            application("/base/", tmp_path), lambda runner: web.UnixSite(runner, str(socket))
        )
    client = open_relay(str(socket))

    async def pass_on(request):
        return await relay(request, client, f"http://localhost{request.rel_url.raw_path_qs}", OWN)

    front = web.Application()
    front.router.add_route("*", "/{path:.*}", pass_on)
    runner = await serve(front, lambda runner: web.TCPSite(runner, "127.0.0.1", 0))
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await client.close()
        for runner in reversed(runners):
            await runner.cleanup()


def asked(tmp_path, method, path, *, there=True, **how):
    async def go():
        async with relaying(tmp_path, there=there) as url, aiohttp.ClientSession() as session:
            async with session.request(
                method, f"{url}{path}", allow_redirects=False, **how
            ) as answer:
                return answer.status, answer.headers, await answer.read()

    return asyncio.run(go())


def test_a_request_goes_on_as_it_was_quoted_with_its_body_and_without_what_tells_who_asks(tmp_path):
    given = {
        "Authorization": "Bearer browser",
        "Cookie": "a=b",
        "Origin": "http://x",
        "Referer": "http://x/secret",
    }
    path = "/base/api/a%2Fb%20c?q=%26"
    status, headers, body = asked(
        tmp_path, "PUT", path, data="content", headers=given | {"X-Mine": "1"}
    )
    told = json.loads(body)
    assert (status, told["method"], told["path"], told["body"]) == (200, "PUT", path, "content")
    assert told["headers"]["Authorization"] == "Bearer job"
    assert told["headers"]["X-Mine"] == "1"
    assert not {"Cookie", "Origin", "Referer"} & set(told["headers"])
    # Cookies know no ports: they do not pass in this direction either.
    assert "Set-Cookie" not in headers
    assert headers["X-Own"] == "1"


def test_a_websocket_goes_both_ways_by_the_protocol_that_both_know_and_ends_with_either(tmp_path):
    async def go():
        async with relaying(tmp_path) as url, aiohttp.ClientSession() as session:
            known = ("v1.kernel.websocket.jupyter.org", "other")
            async with session.ws_connect(f"{url}/base/channels", protocols=known) as socket:
                await socket.send_str("text")
                await socket.send_bytes(bytes(3_000_000))
                heard = [(await socket.receive()).data, (await socket.receive()).data]
                await socket.send_str("end")
                last = await socket.receive()
                return socket.protocol, heard, last.type

    protocol, (text, content), last = asyncio.run(go())
    assert protocol == "v1.kernel.websocket.jupyter.org"
    assert (text, len(content)) == ("text", 3_000_000)
    assert last in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
