"""An open session, and the way to its server."""

import asyncio
import contextlib
import importlib
import socket
import sys
import threading
import time
from dataclasses import replace

import cloudpickle
import pytest
import ray

from raysm.core.protocol.connections import GREETING
from raysm.errors import CallFailed, InvalidRequest, SessionEnded
from raysm.features.session.client.connection import (
    SessionConnection,
    choose_loads,
    open_route,
)
from raysm.features.session.client.start import ServerAddress
from raysm.features.session.protocol import CALL, CallRequest, Versions
from tests.support.sessions import NoCells, connected_session, served
from tests.support.stub_job import TOKEN, StubJob
from tests.support.waiting import until


@pytest.fixture
def server(tmp_path):
    with served(tmp_path) as running:
        yield running


@pytest.fixture
def connection(server, tmp_path):
    here = SessionConnection(
        StubJob(tmp_path, server.port), "digits", ServerAddress("algo-1", server.port)
    )
    here.open()
    yield here
    here.close()


def asked(connection, function, *args):
    request = CallRequest(kind=CALL, name="f", python=Versions.here().pickle_version)
    return connection.send_call(request, [cloudpickle.dumps((function, args, {}))])


class LateCells(NoCells):
    """A namespace whose process starts when a test lets it."""

    def __init__(self):
        super().__init__()
        self.has_started = threading.Event()

    async def run(self, call):
        await asyncio.to_thread(self.has_started.wait, 60)
        return await super().run(call)


def test_the_first_cell_on_another_instance_that_waits_for_its_process_says_so_once(
    tmp_path, caplog
):
    with (
        served(tmp_path, cells=LateCells()) as server,
        connected_session(tmp_path, server) as session,
    ):
        calls = [session.cell("1", on=host) for host in ("algo-2", "algo-2", "algo-1", None)]
        until(lambda: caplog.messages)
        assert caplog.messages == [
            "waiting for a Python process on algo-2, which its first cell starts"
        ]
        server.cells.has_started.set()
        for call in calls:
            assert call.wait(60)


def late():
    raise ray.exceptions.GetTimeoutError("late")


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module beside the user's program, which travels by value."""
    (tmp_path / "own_work.py").write_text(
        "import ray\n@ray.remote\ndef add(x): return x\ndef uses():\n    return add.remote(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("own_work")
    del sys.modules["own_work"]


def test_between_two_versions_of_ray_no_object_of_rays_travels(connection, own_module, caplog):
    version, connection._there = ray.__version__, replace(connection._there, ray="2.55.1")
    connection.context = replace(connection.context, loads=choose_loads(version, "2.55.1"))
    # Functions that merely use Ray may travel, and what cannot be pickled is refused later.
    for value in ("a", late, print, threading.Lock()):
        connection.check_ray("it", print, value, {"b": [1]})
    assert connection.pickle_item({"c": 2}, "item 3")
    told = rf"holds an object of Ray {version}, .*ray==2\.55\.1"
    for fn, value in ((print, {"f": ray.remote(late)}), (print, [ray.get]), (own_module.uses, 1)):
        with pytest.raises(InvalidRequest, match=rf"^it {told}"):
            connection.check_ray("it", fn, value)
    with pytest.raises(InvalidRequest, match=rf"^item 3 {told}"):
        connection.pickle_item([ray.remote(late)], "item 3")
    # Nor back: exceptions of Ray's come as text.
    assert asked(connection, abs, -2).result(timeout=60) == 2
    strategy = "__import__('ray').util.scheduling_strategies.PlacementGroupSchedulingStrategy(None)"
    with pytest.raises(CallFailed, match=r"Ray 2\.55\.1.*plain data"):
        asked(connection, eval, strategy).result(60)
    with pytest.raises(CallFailed, match="GetTimeoutError: late"):
        asked(connection, late).result(60)
    assert caplog.records == []


def test_a_session_that_is_ending_is_not_entered(server, tmp_path):
    server.host.calls.closing = "it was closed"
    here = SessionConnection(
        StubJob(tmp_path, server.port), "digits", ServerAddress("algo-1", server.port)
    )
    with pytest.raises(SessionEnded, match="digits is closing"):
        here.open()
    here.close()


def test_calls_that_are_under_way_are_waited_for_as_long_as_is_wanted(connection):
    call = asked(connection, time.sleep, 0.5)
    connection.wait_for_calls(0.01)
    assert not call.done()
    connection.wait_for_calls(60)
    assert call.done()


@pytest.fixture
def stranger():
    """Another program of this machine at a port: it says ``server.says``, and keeps what it is told."""

    class Stranger:
        def __init__(self):
            self.says, self.heard = b"", b""
            self.server = socket.create_server(("127.0.0.1", 0))
            self.port = self.server.getsockname()[1]
            self.thread = threading.Thread(target=self.serve)
            self.thread.start()

        def serve(self):
            caller, _ = self.server.accept()
            with caller, contextlib.suppress(OSError):
                caller.sendall(self.says)
                caller.settimeout(60)
                while piece := caller.recv(4096):
                    self.heard += piece
                    caller.sendall(b"x" * 32)

    server = Stranger()
    yield server
    server.thread.join()
    server.server.close()


def ways(job, port):
    """Return the address, and the tunnels that were open meanwhile."""
    with open_route(job, TOKEN, ServerAddress("algo-1", port)) as address:
        tunnels = list(job.tunnels)
        return address(), tunnels


def test_a_server_of_this_machine_is_reached_without_a_tunnel(tmp_path):
    with served(tmp_path / "served") as server:
        job = StubJob(tmp_path, server.port)
        assert ways(job, server.port) == (f"127.0.0.1:{server.port}", [])


def test_where_nobody_listens_the_way_is_a_tunnel_to_the_head_which_is_closed_with_it(tmp_path):
    job = StubJob(tmp_path, 1)
    job.leads_to = 4321
    assert ways(job, 1) == ("127.0.0.1:4321", [(1, "algo-1")])
    assert job.tunnels == []


@pytest.mark.parametrize(
    "says",
    [b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 64, GREETING + b"n" * 32],
    ids=["HTTP", "as a session"],
)
def test_a_stranger_at_that_port_is_left_alone_and_hears_no_token(tmp_path, stranger, says):
    stranger.says = says
    job = StubJob(tmp_path, 1)
    job.leads_to = 4321
    assert ways(job, stranger.port) == ("127.0.0.1:4321", [(stranger.port, "algo-1")])
    stranger.thread.join()
    assert TOKEN.encode() not in stranger.heard
    assert len(stranger.heard) in (0, 64)


def test_the_server_of_another_job_is_not_taken_for_this_ones(tmp_path):
    with served(tmp_path / "served") as server:
        job = StubJob(tmp_path, server.port)
        with open_route(job, "u" * 64, ServerAddress("algo-1", server.port)):
            assert job.tunnels == [(server.port, "algo-1")]
