"""A session's server in this process, without Ray: calls run in threads, cells in a thread that plays the main one."""

import asyncio
import contextlib
import functools
import io
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import aiohttp

import raysm
from raysm.core.protocol.connections import checked_connector, connect_proved
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.protocol.parcels import load
from raysm.features.session.client.calls import CallContext
from raysm.features.session.client.wire import Wire
from raysm.features.session.cluster import work
from raysm.features.session.cluster.blobs import Blobs
from raysm.features.session.cluster.files import Transfers
from raysm.features.session.cluster.host import SessionHost
from raysm.features.session.cluster.jupyter import COMMAND, Jupyters
from raysm.features.session.cluster.lifetime import Activity, Lifetime, LifetimeRules
from raysm.features.session.cluster.outcomes import capture_outcome, interrupted_outcome
from raysm.features.session.cluster.server import SessionServer
from raysm.features.session.protocol import (
    BATCH,
    CALL,
    CELL,
    FUNCTION,
    JUPYTER,
    PULL,
    PUSH,
    SHELL,
    TRANSFER,
    Outcome,
    SessionState,
    Versions,
)
from tests.support.stub_job import TOKEN, StubJob

WAIT_S = 300.0
NO_JOBS = Activity(0, None)


def state(**fields):
    """Return how a session is that is open, and of which nobody knows the price; ``fields`` replace."""
    plain = {
        "job": "digits-1",
        "versions": Versions.here(),
        "hosts": ("algo-1", "algo-2"),
        "cpus": 8.0,
        "gpus": 0.0,
        "busy": 0,
        "clients": 1,
        "uptime_s": 60.0,
        "ends_in_s": 1700.0,
        "ends_why": "idle for 30 min with a client attached",
        "closing": "",
        "usd": None,
        "usd_per_hour": None,
        "budget_usd": None,
        "folder": "/x",
    }
    return SessionState(**(plain | fields))


@contextlib.contextmanager
def connected_session(folder, server):
    """Run the block with a session that is attached to ``server``; what its job keeps lies in ``folder``."""
    handle = raysm.Session(name="digits")
    handle._connect(StubJob(folder, server.port), lambda event: None)
    yield handle
    handle.detach()


class ThreadedCalls:
    """Runs calls in threads of this process; in the place of CallProcesses and RemoteCalls."""

    def __init__(self):
        self.functions, self.executed, self.interrupts, self.blobs = {}, [], {}, None
        self.kinds = {
            CALL: self.call,
            FUNCTION: self.function,
            BATCH: self.batch,
            SHELL: self.shell,
        }

    def count_slots(self, num_cpus, num_gpus):
        return 2

    def count_resources(self):
        return 4.0, 0.0

    async def run(self, call):
        self.executed.append(call.id)
        call.start()
        interrupt = self.interrupts[call.id] = asyncio.Event()
        doing = asyncio.create_task(asyncio.to_thread(self.kinds[call.request.kind], call))
        wanted = asyncio.create_task(interrupt.wait())
        await asyncio.wait([doing, wanted], return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()
        return doing.result() if doing.done() else (interrupted_outcome().encode(), True)

    def interrupt(self, call):
        if call.id in self.interrupts:
            self.interrupts[call.id].set()

    def call(self, call):
        function, args, kwargs = load(call.content)
        with contextlib.redirect_stdout(Printed(call.output, sys.stdout)):
            outcome = capture_outcome(
                lambda: function(*args, **kwargs), name=call.request.name, host="algo-1"
            )
        return self.blobs.keep(outcome.pieces()), outcome.error is not None

    def function(self, call):
        self.functions[call.request.function] = bytes(call.content)
        return Outcome().encode(), False

    def batch(self, call):
        request = call.request
        function = self.functions[request.function]
        return work.run_batch(
            function,
            bytes(call.content),
            request.first,
            request.retries,
            request.return_exceptions,
            request.unpack,
        )

    def shell(self, call):
        return work.run_shell(bytes(call.content).decode(), "")


class Printed(io.TextIOBase):
    """Takes what the thread prints in which one call runs; all else goes where it would have gone."""

    def __init__(self, output, before):
        self.output, self.before, self.thread = output, before, threading.get_ident()

    def write(self, text):
        if threading.get_ident() != self.thread:
            return self.before.write(text)
        self.output.write("stdout", text)
        return len(text)


class NoCells:
    """A namespace in which nothing runs."""

    def __init__(self):
        self.namespace = {"alpha": 1, "alphabet": 2}

    async def run(self, call):
        await asyncio.sleep(0)
        return interrupted_outcome().encode(), True

    def interrupt(self, call):
        pass


class Jobs:
    """Ray's jobs, as a test says."""

    def __init__(self, seen):
        self.seen = seen
        self.looks = 0

    async def fetch_activity(self):
        self.looks += 1
        return self.seen


def executors_of(cells, remote):
    """Return what does the calls of a session without Ray, by their kind."""
    return dict.fromkeys((CALL, FUNCTION, BATCH, SHELL), remote) | dict.fromkeys(
        (CELL, PUSH, PULL), cells
    )


class Served:
    """One server; ``seen`` is what it first sees of Ray's jobs.

    Attributes: remote, jobs, events, host, port, why (set at the end).
    """

    def __init__(
        self,
        folder,
        rules=None,
        cells=None,
        uptime_s=0.0,
        idle_since_s=0.0,
        jupyter=COMMAND,
        seen=NO_JOBS,
    ):
        self.folder, self.rules = folder, rules or LifetimeRules(idle_s=1800, idle_detached_s=300)
        self.remote, self.jobs, self.events = ThreadedCalls(), Jobs(seen), []
        self.cells, self.jupyter = cells or NoCells(), jupyter
        self.uptime_s, self.idle_since_s = uptime_s, idle_since_s
        self.host = self.port = self.why = self.server = None
        self.is_up, self.is_over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.live()), daemon=True)

    async def live(self):
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        job = "digits-1", ("algo-1", "algo-2"), self.folder / "work"
        blobs = self.remote.blobs = Blobs(self.folder / "values")
        idle_from_s = time.monotonic() - self.idle_since_s
        lifetime = Lifetime(self.rules, idle_from_s, idle_from_s - self.uptime_s)
        # Short, since the sockets of Jupyter's kernels lie below it.
        private = tempfile.mkdtemp(prefix="rj")
        jupyters = Jupyters(self.folder / "work", Path(private), self.jupyter)
        executors = executors_of(self.cells, self.remote) | {
            TRANSFER: Transfers(self.folder / "work"),
            JUPYTER: jupyters,
        }
        activity_sources = (self.jobs.fetch_activity,)
        self.host = SessionHost(
            *job,
            self.cells,
            executors,
            self.remote,
            lifetime,
            activity_sources,
            self.events.append,
            blobs,
        )
        self.server = SessionServer(self.host, TOKEN.encode(), jupyters)
        self.port = await self.server.start()
        self.is_up.set()
        try:
            self.why = await self.host.live(self.server.wake_all)
        finally:
            await self.server.close()
            shutil.rmtree(private)
            self.is_over.set()

    def close(self):
        if not self.is_over.is_set():
            self.host.loop.call_soon_threadsafe(self.host.close, "the test is over")
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def served(folder, **how):
    """Yield a running server; it is ended afterwards."""
    server = Served(folder, **how)
    server.thread.start()
    assert server.is_up.wait(WAIT_S)
    try:
        yield server
    finally:
        server.close()


def proved(server, token=TOKEN):
    """Return aiohttp's client of a running server; to be made in a coroutine."""
    open_connection = functools.partial(connect_proved, token=token, server_port=server.port)
    return aiohttp.ClientSession(connector=checked_connector(open_connection))


@contextlib.contextmanager
def wired(
    port,
    *,
    server_port=None,
    token=TOKEN,
    client="me",
    describe_end=lambda: None,
    hear=lambda message: None,
    **options,
):
    """Yield an open connection to the server at ``port``, which may be a function if ``server_port`` is given.

    ``options`` are those of Wire.
    """
    address = port if callable(port) else lambda: f"127.0.0.1:{port}"
    loop = LoopThread("test")
    open_connection = functools.partial(
        connect_proved, token=token, server_port=server_port or port
    )
    wire = Wire(
        address,
        open_connection,
        client,
        describe_end=describe_end,
        on_message=hear,
        **options,
    )
    try:
        loop.run(wire.open(), WAIT_S)
        yield CallContext(loop, wire, "digits")
        loop.run(wire.close(), WAIT_S)
    finally:
        loop.close()
