"""Files of a session, between the head and whoever asks, or a store."""

import asyncio

import pytest
from aiohttp import web

from raysm.errors import InvalidRequest, RaysmError
from raysm.workloads.session.files import receive, send, size_of


class Bytes:
    """Content that comes in pieces."""

    def __init__(self, *pieces, error=None):
        self.pieces, self.error = list(pieces), error

    async def read(self, n=-1):
        if not self.pieces and self.error:
            raise self.error
        return self.pieces.pop(0) if self.pieces else b""


def test_a_file_that_comes_in_pieces_is_whole_or_not_there(tmp_path):
    assert asyncio.run(receive(tmp_path / "deep" / "a.bin", Bytes(b"ab", b"c"), None)) == 3
    assert (tmp_path / "deep" / "a.bin").read_bytes() == b"abc"
    with pytest.raises(ConnectionError):
        asyncio.run(receive(tmp_path / "b.bin", Bytes(b"ab", error=ConnectionError()), None))
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InvalidRequest, match="is a folder of the session; name a file in it"):
        asyncio.run(receive(tmp_path, Bytes(b"x"), None))
    with pytest.raises(InvalidRequest, match="is a folder; name a file in it"):
        size_of(tmp_path)


def test_what_is_not_there_is_said_with_its_path(tmp_path):
    with pytest.raises(InvalidRequest, match=r"model\.pt is not there"):
        size_of(tmp_path / "model.pt")


class Request:
    """What ``send`` asks of a request."""

    def __init__(self, **query):
        self.query = query


async def with_store(script, status=200):
    """Run ``script(address)`` beside a store that keeps one object; return that object and what the script returns."""
    stored = {"content": b""}

    async def put(request):
        stored["content"] = await request.read()
        return web.Response(status=status)

    async def get(request):
        return web.Response(body=stored["content"] or b"from the store", status=status)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_put("/object", put)
    app.router.add_get("/object", get)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        return stored, await script(f"http://127.0.0.1:{runner.addresses[0][1]}/object?signed=yes")
    finally:
        await runner.cleanup()


def test_a_large_file_comes_from_the_address_that_the_client_has_signed(tmp_path):
    async def script(address):
        return await receive(tmp_path / "a.bin", Bytes(), address)

    assert asyncio.run(with_store(script))[1] == 14
    assert (tmp_path / "a.bin").read_bytes() == b"from the store"


def test_a_large_file_goes_to_the_address_that_the_client_has_signed(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)

    async def script(address):
        return await send(tmp_path / "a.bin", Request(to=address))

    stored, answer = asyncio.run(with_store(script))
    assert stored["content"] == b"x" * 3_000_000
    assert b"3000000" in answer.body


def test_a_store_that_refuses_is_named_with_its_status(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")

    async def refused(address):
        with pytest.raises(RaysmError, match=r"does not take a\.bin: HTTP 403"):
            await send(tmp_path / "a.bin", Request(to=address))
        with pytest.raises(RaysmError, match=r"does not give b\.bin: HTTP 403"):
            await receive(tmp_path / "b.bin", Bytes(), address)

    asyncio.run(with_store(refused, status=403))
    assert not (tmp_path / "b.bin").exists()
