"""Large values of an instance, in memory or in files."""

import asyncio
import gc
import os
import socket
import threading

import pytest

from raysm.contract.parcels import BULK, receive_line, send_line
from raysm.errors import InvalidRequest
from raysm.workloads.session import blobs
from raysm.workloads.session.blobs import Blobs, opened, write_to


@pytest.fixture(params=["memory", "file"])
def kept(request, tmp_path, monkeypatch):
    if request.param == "file":
        monkeypatch.setattr(blobs, "MEMORY_SHARE", 0)
    return Blobs(tmp_path / "values")


def test_a_blob_is_written_and_read_by_its_path_and_a_change_stays_here(kept, tmp_path):
    blob = kept.new()
    blob.size = write_to(blob.path, [b"abc", memoryview(b"def")])
    assert bytes(opened(blob.path, blob.size)) == bytes(blob.content()) == b"abcdef"
    changed = blob.content()
    changed[0] = 0
    assert bytes(blob.content()) == b"abcdef"
    del blob, changed
    gc.collect()
    assert not (tmp_path / "values").exists() or list((tmp_path / "values").iterdir()) == []


def test_nobody_else_reads_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(blobs, "MEMORY_SHARE", 0)
    assert os.stat(Blobs(tmp_path / "values").new().path).st_mode & 0o077 == 0


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
