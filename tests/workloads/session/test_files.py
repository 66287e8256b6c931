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
    with pytest.raises(InvalidRequest, match=r"model\.pt is not there"):
        size_of(tmp_path / "model.pt")


async def with_store(script, status=200, get=None):
    """Run ``script(address)`` beside a store that keeps one object; return that object and what the script returns."""
    stored = {"content": b""}

    async def put(request):
        stored["content"] = await request.read()
        return web.Response(status=status)

    async def whole(request):
        return web.Response(body=stored["content"], status=status)

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


def test_large_files_go_to_and_come_from_addresses_that_the_client_has_signed(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)

    async def script(address):
        return await send(tmp_path / "a.bin", address), await receive(tmp_path / "b.bin", Bytes(), address)

    stored, sizes = asyncio.run(with_store(script))
    assert sizes == (3_000_000, 3_000_000)
    assert stored["content"] == (tmp_path / "b.bin").read_bytes() == b"x" * 3_000_000


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


def test_a_transfer_is_shared_by_all_who_ask_and_ended_with_the_session():
    begun = []

    async def script():
        transfers, may_end = Transfers(), asyncio.Event()

        async def begin():
            begun.append("a")
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                begun.append("cancelled")
                raise
            return 7

        async def refused():
            raise RaysmError("HTTP 403")

        answers = [await transfers.wait("signed", begin, 0) for _ in range(3)]
        may_end.set()
        assert [*answers, await transfers.wait("signed", begin, 60)] == [None, None, None, 7]
        # One that failed is reported to who asks next, and begins anew then.
        with pytest.raises(RaysmError, match="HTTP 403"):
            await transfers.wait("signed", refused, 60)
        may_end.clear()
        assert await transfers.wait("signed", begin, 0) is None
        await asyncio.sleep(0)
        await transfers.close()

    asyncio.run(script())
    assert begun == ["a", "a", "cancelled"]
