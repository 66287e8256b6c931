"""Runs a session: the driver joins Ray, serves clients, and runs cells until the session ends.

The server has a thread of its own. The main thread runs the cells, because a signal interrupts only
that one.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import ray

from raysm.core.protocol.events import State
from raysm.features.session.cluster.blobs import Blobs
from raysm.features.session.cluster.calls import Executor
from raysm.features.session.cluster.cells import Cells
from raysm.features.session.cluster.files import Transfers
from raysm.features.session.cluster.host import SessionHost
from raysm.features.session.cluster.jupyter import Jupyters
from raysm.features.session.cluster.lifetime import Lifetime, LifetimeRules, fetch_ray_activity
from raysm.features.session.cluster.namespace import show_figures_inline
from raysm.features.session.cluster.output import Output, OutputReceiver, route_output
from raysm.features.session.cluster.processes import CallProcesses
from raysm.features.session.cluster.remote_calls import InstanceCells, RemoteCalls
from raysm.features.session.cluster.server import SessionServer
from raysm.features.session.protocol import (
    BATCH,
    CALL,
    JUPYTER,
    NAMESPACE_KINDS,
    REMOTE_KINDS,
    SERVING,
    TRANSFER,
    Versions,
)
from raysm.features.session.request import SessionWorkload
from raysm.instance.environment import Environment
from raysm.instance.log import emit_event
from raysm.instance.work.runner import Runner, leave, leave_on_sigterm

SERVER_THREAD = "session-server"
RAYS_PRINTER = "ray_print_logs"
"""The thread in which Ray prints what its workers wrote."""


class SessionRunner(Runner[SessionWorkload]):
    def prepare(self) -> None:
        """Look up the installed versions while the cluster forms: the first client needs them."""
        Versions.here()

    def run(self, address: str) -> None:
        started_s = time.monotonic()
        ray.init(address=address)
        folder = self.environment.paths.scratch / "session"
        folder.mkdir(parents=True, exist_ok=True)
        # A short path, for sockets, and private, because outcomes belong to the user.
        private = Path(tempfile.mkdtemp(prefix="rs"))
        leave_on_sigterm(lambda: shutil.rmtree(private, ignore_errors=True))
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        show_figures_inline()
        blobs = Blobs(private / "values")
        cells = Cells(self.environment.current_host, blobs.keep)
        serving = _Serving(self, cells, folder, private, blobs)
        try:
            with route_output(lambda: serving.output()):
                serving.thread.start()
                cells.live()
                serving.thread.join()
        finally:
            shutil.rmtree(private, ignore_errors=True)
        if serving.error is not None:
            raise serving.error
        self.describe_result({"session": time.monotonic() - started_s})
        self.mark_end()
        leave()


class _Serving:
    def __init__(
        self, runner: SessionRunner, cells: Cells, folder: Path, private: Path, blobs: Blobs
    ) -> None:
        self.error: BaseException | None = None
        self._runner = runner
        self._cells = cells
        self._folder = folder
        self._private = private
        self._blobs = blobs
        self._host: SessionHost | None = None
        self.thread = threading.Thread(target=self._serve, name=SERVER_THREAD, daemon=True)

    def output(self) -> Output | None:
        """Return the output to which the calling thread prints; None is the job's log."""
        name = threading.current_thread().name
        if name == SERVER_THREAD:
            return None
        if name == RAYS_PRINTER:
            # Ray does not say which call's task wrote a line: only while one call runs, the line
            # must be that call's. A client does not read the output of a map's batch, so its lines
            # go to the job's log.
            running = [] if self._host is None else self._host.calls.list_running()
            return (
                running[0].output
                if len(running) == 1 and running[0].request.kind != BATCH
                else None
            )
        return self._cells.output

    def _serve(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            self.error = error
        finally:
            self._cells.end()

    async def _live(self) -> None:
        environment = self._runner.environment
        payload = self._runner.payload
        head = environment.head(payload.request.cluster).name
        receiver = OutputReceiver(self._private / "s")
        await receiver.start()
        processes = CallProcesses(head, self._folder, receiver, self._blobs)
        hosts = tuple(host.name for host in environment.ranked(payload.request.cluster))
        ray_jobs = functools.partial(
            fetch_ray_activity, environment.ports(payload.request.ports).dashboard, payload.token()
        )
        remote = RemoteCalls(head, self._folder)
        jupyters = Jupyters(self._folder, self._private)
        executors: dict[str, Executor] = {
            CALL: processes,
            JUPYTER: jupyters,
            TRANSFER: Transfers(self._folder),
        }
        executors |= dict.fromkeys(REMOTE_KINDS, remote)
        executors |= dict.fromkeys(NAMESPACE_KINDS, InstanceCells(head, self._cells, receiver))
        self._host = host = SessionHost(
            environment.job_name,
            hosts,
            self._folder,
            self._cells,
            executors,
            remote,
            lifetime_of(self._runner.workload, environment),
            (ray_jobs, jupyters.fetch_activity),
            emit_event,
            self._blobs,
        )
        server = SessionServer(host, payload.token(), jupyters)
        port = await server.start()
        emit_event(State(name=SERVING, host=head, address=f"http://127.0.0.1:{port}"))
        # After that line: asking Ray for a process blocks this thread for 0.3 s, while the client
        # connects.
        processes.prepare()
        try:
            await host.live(server.wake_all)
        finally:
            with contextlib.suppress(OSError):
                await server.close()
            processes.close()
            receiver.close()


def lifetime_of(workload: SessionWorkload, environment: Environment) -> Lifetime:
    """Return the lifetime of a session that starts now."""
    rules = LifetimeRules(
        idle_s=workload.idle_timeout_s,
        idle_detached_s=workload.idle_timeout_detached_s,
        usd_per_hour=workload.usd_per_hour,
        budget_usd=workload.max_cost,
        limit_s=workload.max_cost_s,
    )
    return Lifetime(rules, time.monotonic(), environment.began_s)
