"""Files of a session, between the head and whoever asks, or a store."""

import asyncio
import gc
import json
import os
import pickle
import socket
import threading

import pytest
from aiohttp import web

from raysm.core.protocol.parcels import BULK, receive_line, send_line
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.session.cluster.blobs import Blobs, map_file, write_file
from raysm.features.session.cluster.calls import Call
from raysm.features.session.cluster.files import Transfers, measure_file, receive, send
from raysm.features.session.protocol import TRANSFER, CallRequest, Outcome
from tests.support.interrupting import interrupted


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
    with pytest.raises(InvalidRequest, match="folder"):
        asyncio.run(receive(tmp_path, Bytes(b"x"), None))
    with pytest.raises(InvalidRequest, match="folder"):
        measure_file(tmp_path)
    with pytest.raises(InvalidRequest, match=r"model\.pt"):
        measure_file(tmp_path / "model.pt")


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
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        return stored, await script(f"http://127.0.0.1:{runner.addresses[0][1]}/object?signed=yes")
    finally:
        await runner.cleanup()


def test_large_files_go_to_and_come_from_addresses_that_the_client_has_signed(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)

    async def script(address):
        return await send(tmp_path / "a.bin", address), await receive(
            tmp_path / "b.bin", None, address
        )

    stored, sizes = asyncio.run(with_store(script))
    assert sizes == (3_000_000, 3_000_000)
    assert stored["content"] == (tmp_path / "b.bin").read_bytes() == b"x" * 3_000_000


def test_a_store_that_refuses_is_named_with_its_status(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")

    async def refused(address):
        with pytest.raises(RaysmError, match=r"a\.bin.*403"):
            await send(tmp_path / "a.bin", address)
        with pytest.raises(RaysmError, match=r"b\.bin.*403"):
            await receive(tmp_path / "b.bin", None, address)

    asyncio.run(with_store(refused, status=403))
    assert not (tmp_path / "b.bin").exists()


def transfer(**what):
    return Call("t", CallRequest(kind=TRANSFER, name="t"), json.dumps(what).encode(), lambda: None)


def test_a_transfer_is_a_call_that_copies_a_file_and_is_interrupted(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")

    async def script(address):
        transfers = Transfers(tmp_path)
        outcome, has_failed = await transfers.run(transfer(path="a.bin", to=address))
        await transfers.run(transfer(path="b.bin", **{"from": address}))
        return pickle.loads(Outcome.decode(outcome).pickled), has_failed

    stored, (value, has_failed) = asyncio.run(with_store(script))
    assert (value, has_failed) == ({"path": str(tmp_path / "a.bin"), "bytes": 3}, False)
    assert stored["content"] == (tmp_path / "b.bin").read_bytes() == b"abc"

    async def never(request):
        await asyncio.Event().wait()

    async def ends(address):
        transfers = Transfers(tmp_path)
        return await interrupted(
            transfers, transfer(path="c.bin", **{"from": address}), lambda: transfers._running
        )

    assert asyncio.run(with_store(ends, get=never))[1].error.cancelled
    assert not (tmp_path / "c.bin").exists()


@pytest.fixture(params=["memory", "file"])
def kept(request, tmp_path):
    return Blobs(tmp_path / "values", memory_share={"memory": 0.2, "file": 0}[request.param])


def test_a_blob_is_written_and_read_by_its_path_and_a_change_stays_here(kept, tmp_path):
    blob = kept.create()
    blob.size = write_file(blob.path, [b"abc", memoryview(b"def")])
    assert bytes(map_file(blob.path, blob.size)) == bytes(blob.content()) == b"abcdef"
    changed = blob.content()
    changed[0] = 0
    assert bytes(blob.content()) == b"abcdef"
    del blob, changed
    gc.collect()
    assert not (tmp_path / "values").exists() or list((tmp_path / "values").iterdir()) == []


def test_nobody_else_reads_a_file(tmp_path):
    assert os.stat(Blobs(tmp_path / "values", memory_share=0).create().path).st_mode & 0o077 == 0


def exchanged(kept, ask, outcome=None):
    """Return what ``ask(connection)`` returns, with ``kept`` at the other end."""
    here, there = socket.socketpair()
    results = []

    def client():
        with here:
            results.append(ask(here))

    thread = threading.Thread(target=client)
    thread.start()
    asyncio.run(kept.serve(there, outcome))
    thread.join(60)
    return results[0]


def test_a_client_sends_a_value_and_fetches_one(kept):
    def put(connection):
        send_line(connection, {"put": "1", "bytes": 6}, BULK)
        receive_line(connection)
        connection.sendall(b"abcdef")
        return receive_line(connection)

    def get(connection):
        send_line(connection, {"get": "1"}, BULK)
        return receive_line(connection), connection.makefile("rb").read()

    assert exchanged(kept, put) == {}
    blob = kept.take("1")
    assert exchanged(kept, get, lambda id: blob) == ({"bytes": 6}, b"abcdef")
    with pytest.raises(InvalidRequest, match="did not arrive"):
        kept.take("1")


def test_a_value_that_breaks_off_is_not_kept(kept):
    def broken(connection):
        send_line(connection, {"put": "1", "bytes": 6}, BULK)
        receive_line(connection)
        connection.sendall(b"abc")

    exchanged(kept, broken)
    with pytest.raises(InvalidRequest, match="did not arrive"):
        kept.take("1")
