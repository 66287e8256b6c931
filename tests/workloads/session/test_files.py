"""Files of a session, between the head and whoever asks, or a store."""

import asyncio

import pytest
from aiohttp import web

from raysm.errors import InvalidRequest, RaysmError
from raysm.workloads.session.files import Transfers, receive, send, size_of


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


async def with_store(script, status=200, get=None):
    """Run ``script(address)`` beside a store that keeps one object; return that object and what the script returns."""
    stored = {"content": b""}

    async def put(request):
        stored["content"] = await request.read()
        return web.Response(status=status)

    async def whole(request):
        return web.Response(body=stored["content"] or b"from the store", status=status)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_put("/object", put)
    app.router.add_get("/object", get or whole)
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
        return await send(tmp_path / "a.bin", address)

    stored, size = asyncio.run(with_store(script))
    assert (stored["content"], size) == (b"x" * 3_000_000, 3_000_000)


def test_a_store_that_refuses_is_named_with_its_status(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")

    async def refused(address):
        with pytest.raises(RaysmError, match=r"does not take a\.bin: HTTP 403"):
            await send(tmp_path / "a.bin", address)
        with pytest.raises(RaysmError, match=r"does not give b\.bin: HTTP 403"):
            await receive(tmp_path / "b.bin", Bytes(), address)

    asyncio.run(with_store(refused, status=403))
    assert not (tmp_path / "b.bin").exists()


def test_a_store_that_breaks_off_is_named_with_its_file(tmp_path):
    async def broken(request):
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"x")
        request.transport.abort()
        return answer

    async def script(address):
        with pytest.raises(RaysmError, match=r"the job's store broke off at b\.bin"):
            await receive(tmp_path / "b.bin", Bytes(), address)

    asyncio.run(with_store(script, get=broken))
    assert list(tmp_path.iterdir()) == []


def test_who_asks_again_for_a_transfer_waits_for_the_same_one():
    begun = []

    async def ask():
        transfers, may_end = Transfers(), asyncio.Event()

        async def begin():
            begun.append("a")
            await may_end.wait()
            return 7

        answers = [await transfers.wait("signed", begin, 0) for _ in range(3)]
        may_end.set()
        return [*answers, await transfers.wait("signed", begin, 60)]

    assert asyncio.run(ask()) == [None, None, None, 7]
    assert begun == ["a"]


def test_a_transfer_that_failed_is_said_to_who_asks_next_and_begins_anew_for_who_asks_then():
    async def ask():
        transfers = Transfers()

        async def refused():
            raise RaysmError("HTTP 403")

        async def taken():
            return 7

        with pytest.raises(RaysmError, match="HTTP 403"):
            await transfers.wait("signed", refused, 60)
        return await transfers.wait("signed", taken, 60)

    assert asyncio.run(ask()) == 7


def test_a_session_that_ends_breaks_off_what_is_under_way():
    async def ask():
        transfers, ends = Transfers(), []

        async def begin():
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("broken off")

        assert await transfers.wait("signed", begin, 0) is None
        await asyncio.sleep(0)
        await transfers.close()
        return ends

    assert asyncio.run(ask()) == ["broken off"]
