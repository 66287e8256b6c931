"""Relay a browser's HTTP requests and WebSockets to another server.

Two servers between a browser and Jupyter do so: the proxy on the user's machine, and the session's
server on the head. Each authenticates the request itself, and removes the caller's credentials
before it passes the request on.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from raysm.core.protocol.connections import OpenConnection, checked_connector

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web


# https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}

NOT_UP = HOP_BY_HOP | {
    "authorization",
    "cookie",
    "host",
    "origin",
    "referer",
    "x-proxycontextpath",
    "x-ray-authorization",
}
"""Headers that are not sent to the other server: credentials, and the secret path of the page,
which Ray would write into its access log. Also Origin, which the other server would compare with
its own name; the proxy has already refused pages of other sites."""

NOT_DOWN = HOP_BY_HOP | {"set-cookie", "content-length", "server", "date"}
"""Headers that are not sent back. Cookies do not depend on the port, so two servers on one machine
would overwrite each other's cookies."""
CONNECT_S = 20.0
"""Seconds to connect; the first connection through a tunnel has a handshake of several seconds."""


def open_relay(way: str | OpenConnection) -> "aiohttp.ClientSession":
    """Return a client for ``relay``.

    ``way`` is the path of the other server's Unix socket, or a function that connects to the host
    and port of a URL.
    """
    import aiohttp

    return aiohttp.ClientSession(
        # No limits: each notebook has a WebSocket, on which a computing kernel may send nothing for
        # hours.
        connector=aiohttp.UnixConnector(way, limit=0)
        if isinstance(way, str)
        else checked_connector(way),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        # Compressed content is passed on unchanged.
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def relay(
    request: "web.Request",
    session: "aiohttp.ClientSession",
    url: str,
    headers: Mapping[str, str] | None = None,
) -> "web.StreamResponse":
    """Pass a request on to ``url`` and stream the answer back.

    If the server does not answer, answer 502.

    The URL is percent-encoded as the browser sent it; ``headers`` are added to the browser's own.
    """
    import aiohttp
    from aiohttp import web

    kept = [
        pair
        for pair in _kept(request.headers.items(), NOT_UP)
        if not pair[0].lower().startswith("x-forwarded-")
    ]
    all_headers = kept + list((headers or {}).items())
    try:
        # Browsers send different values of Connection, but all name the protocol in Upgrade.
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await _relay_socket(request, session, url, all_headers)
        return await _relay_request(request, session, url, all_headers)
    except aiohttp.WSServerHandshakeError as error:
        return web.Response(status=error.status)
    except (OSError, aiohttp.ClientError) as error:
        return web.Response(status=502, text=f"the server does not answer: {error}")


async def pass_on(
    answer: "aiohttp.ClientResponse", response: "web.StreamResponse", request: "web.Request"
) -> None:
    """Stream the body of an answer until it ends or one of the two connections breaks."""
    import aiohttp

    try:
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
    except (ConnectionError, aiohttp.ClientError):
        # If the browser has closed the page, there is nothing to report. If the other server is
        # gone, the connection is aborted, because a browser would show half an answer that ends
        # normally as a whole one.
        if request.transport is not None:
            request.transport.abort()


def _kept(headers: Iterable[tuple[str, str]], dropped: set[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in dropped]


async def _relay_request(
    request: "web.Request",
    session: "aiohttp.ClientSession",
    url: str,
    headers: list[tuple[str, str]],
) -> "web.StreamResponse":
    from aiohttp import web
    from yarl import URL

    # A stream, because an upload of a gigabyte must not be kept in memory.
    body = request.content if request.body_exists else None
    # encoded=True, because the browser has percent-encoded the URL already.
    target = URL(url, encoded=True)
    async with session.request(
        request.method, target, headers=headers, data=body, allow_redirects=False
    ) as answer:
        passed = _kept(answer.headers.items(), NOT_DOWN)
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=passed)
        await pass_on(answer, response, request)
        return response


async def _relay_socket(
    request: "web.Request",
    session: "aiohttp.ClientSession",
    url: str,
    headers: list[tuple[str, str]],
) -> "web.StreamResponse":
    from aiohttp import web
    from yarl import URL

    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = [word.strip() for word in offered.split(",") if word.strip()]
    # Each of the two connections has a handshake of its own.
    headers = [
        (name, value) for name, value in headers if not name.lower().startswith("sec-websocket-")
    ]
    # The other server comes first, so that the browser receives its refusal and not a connection
    # that closes.
    async with session.ws_connect(
        URL(url, encoded=True), protocols=protocols, headers=headers, max_msg_size=0
    ) as upstream:
        downstream = web.WebSocketResponse(
            protocols=[upstream.protocol] if upstream.protocol else (), max_msg_size=0
        )
        await downstream.prepare(request)
        pumps = [
            asyncio.create_task(_pump(downstream, upstream)),
            asyncio.create_task(_pump(upstream, downstream)),
        ]
        try:
            # When one end has gone, the other one is closed too.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            with contextlib.suppress(ConnectionError):
                await downstream.close()
        return downstream


async def _pump(
    source: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse",
    target: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse",
) -> None:
    from aiohttp import WSMsgType

    with contextlib.suppress(ConnectionError):
        async for message in source:
            if message.type is WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await target.send_bytes(message.data)
