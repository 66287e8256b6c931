"""``ray start`` with what Ray itself has no switch for.

Run as ``python -m raysm.bootstrap.ray_start [--wait] [--workers=N] start ...``, with the arguments of the ``ray``
command:

- No Ray Client server. It would open one more port on the head and cost a process of 90 MB; nothing of raysm uses it.
- ``N`` workers are started ahead of the first task, instead of one for each CPU: the others would wait for nothing,
  and each wakes a hundred times a second.
- What only shows and tells (the dashboard, the log monitor, the autoscaler's monitor) lets others go first, and is
  killed at the end, where Ray would ask it to leave and wait for it. So is the GCS, after the raylet: its data is not
  needed any more, and it can take a second to leave.
- The dashboard and the autoscaler's monitor are started for the first caller at the dashboard's port, on which this
  process listens from the start, see ``handed_socket``: Ray would wait for two seconds until the dashboard answers
  before it starts the raylet, and both take 5 s of a core to come up, which is more than most short jobs compute.
- On the head nothing connects to the GCS before this user's process listens at its port: Ray's clients send the token
  to any process that does.
- The agents of the raylet are started when they are wanted, see ``ray_agents``: together they take 2 s of a core, and
  the raylet registers its node only behind them.
- The commands beside ``start`` are not imported: half of the time that the command takes to begin is theirs.
- The head's tells which nodes are registered, see ``gcs_state``: a process of its own would import Ray once more.
- With ``--wait``, what takes long, the imports, is done at once, and the address of the cluster that it joins comes
  later, as a line on stdin: a head and its workers import beside each other, and not one behind the other.
- A node that joins looks ten times a second for the head's, which has to be there first: Ray would look every 2 s.

All of Ray's names in this stand in ``ray_internals``. Where one of them goes away, its part is left out with one
warning, which the head passes on to the job's log; only without the command itself there is no node.
"""

import contextlib
import copy
import http.client
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from raysm.bootstrap import ray_internals
from raysm.bootstrap.children import WAIT, descendants
from raysm.bootstrap.gcs_state import await_first, nodes_socket, tell_nodes, tell_unmet, unmet_socket
from raysm.bootstrap.handed_socket import DashboardPort
from raysm.bootstrap.log import remark
from raysm.bootstrap.ray_agents import RayAgents
from raysm.contract.connections import has_own_listener

WORKERS = "--workers="
"""Before the arguments of ``ray``: how many workers are started ahead."""
HEAD = "--head"
ADDRESS = "--address="
"""Before that of the GCS which a node joins."""
NICE = 19
"""The least."""
DASHBOARD_NICE = 5
"""A quarter of a core that a training (nice 0) keeps busy: with the least it would come up after minutes, and Ray gives
it one."""
LOOPBACK = "127.0.0.1"
GCS_S = 60.0
"""Seconds for the GCS to listen; it takes a fifth of one on an idle machine."""
GCS_POLL_S = 0.01
DASHBOARD_S = 60.0
"""Ray's own limit for its dashboard."""
ANSWER_S = 5.0
ANSWER_POLL_S = 0.2
HEAD_S = 30.0
"""Seconds to look for the head's node before Ray looks itself and reports an error."""


def main() -> None:
    """Be the ``ray`` command."""
    workers = None
    waits = sys.argv[1:2] == [WAIT]
    if waits:
        del sys.argv[1]
    if len(sys.argv) > 1 and sys.argv[1].startswith(WORKERS):
        workers = int(sys.argv.pop(1).removeprefix(WORKERS))
    # Ray starts its Client's server wherever gRPC can be imported.
    ray_internals.RAY_CLIENT.replace(lambda _: lambda: ImportError("raysm uses no Ray Client"))
    spectators: list[Any] = []
    is_known = ray_internals.is_supported_release()
    dashboard_port = _listen_for_dashboard() if HEAD in sys.argv and is_known else None
    ray_internals.START_PROCESS.replace(lambda start: adapt_start(start, workers, spectators, dashboard_port))
    ray_internals.KILL_ALL.replace(lambda kill_all: adapt_kill(kill_all, spectators))
    ray_internals.GET_NODE.replace(adapt_get_node)
    if is_known:
        # All or nothing: a raylet whose agent does not come up ends, and its node with it.
        postpone_dashboard(dashboard_port, RayAgents())
    for module in ray_internals.OTHER_COMMANDS:
        sys.modules[module] = None  # type: ignore[assignment]  # Python's way to say: not to be imported
    command = ray_internals.COMMAND.find()
    if HEAD in sys.argv:
        port = int(_option("--port="))
        where = nodes_socket(Path(_option("--temp-dir=")), port), f"127.0.0.1:{port}"
        threading.Thread(target=tell_nodes, args=where, daemon=True, name="nodes").start()
        where = unmet_socket(Path(_option("--temp-dir=")), port), f"127.0.0.1:{port}"
        threading.Thread(target=tell_unmet, args=where, daemon=True, name="unmet requests").start()
    if waits:
        sys.argv.append(f"{ADDRESS}{_read_address()}")
    if head := _option(ADDRESS):
        await_first(head, HEAD_S)
    command()


def _read_address() -> str:
    """Return the line with the cluster's address, which the parent process writes to stdin."""
    address = sys.stdin.readline().strip()
    if not address:
        sys.exit("raysm: stdin was closed before the address of the cluster arrived")
    # Ray's processes inherit stdin, and must not hold a pipe of the bootstrap's.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    return address


def _option(name: str) -> str:
    return _value(name, sys.argv)


def _value(name: str, words: Sequence[str]) -> str:
    return next((word.removeprefix(name) for word in words if word.startswith(name)), "")


def _listen_for_dashboard() -> DashboardPort | None:
    """Return the listener at the dashboard's port; None if it is taken."""
    host, port = _option("--dashboard-host="), int(_option("--dashboard-port=") or 0)
    try:
        return DashboardPort(host, port)
    except OSError as error:
        remark(f"warning: cannot listen at the dashboard's port {port}: {error.strerror}")
        return None


def adapt_start(
    start: Callable[..., Any], workers: int | None, spectators: list[Any], port: DashboardPort | None = None
) -> Callable[..., Any]:
    """Return an adapted version of Ray's ``start_ray_process``.

    Args:
        start: Ray's own.
        workers: How many workers are started ahead; None is Ray's choice.
        spectators: Gets the processes that only show and tell, which are made nice.
        port: The dashboard takes this listener over.
    """

    def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
        if workers is not None:
            command = [
                f"{ray_internals.PRESTART}{workers}" if word.startswith(ray_internals.PRESTART) else word
                for word in command
            ]
        address = _value(ray_internals.GCS_ADDRESS, command) if process_type == ray_internals.RAYLET else ""
        if address:
            # Workers inherit it: without it a task that asks Ray's State API takes any Ray of this machine, or none.
            os.environ["RAY_ADDRESS"] = address  # noqa: TID251  environment would import half of raysm
        if process_type == ray_internals.DASHBOARD and port is not None:
            with port.as_stdin():
                started = start(port.command(command), process_type, *args, **named)
        else:
            started = start(command, process_type, *args, **named)
        if process_type == ray_internals.GCS:
            await_gcs(command, started)
        if process_type in ray_internals.SPECTATORS:
            # One that is gone already, or is told in another form by another Ray, is no reason to have no node.
            with contextlib.suppress(OSError, AttributeError):
                spectators.append(started.process)
                more = DASHBOARD_NICE if process_type == ray_internals.DASHBOARD else NICE
                os.setpriority(os.PRIO_PROCESS, started.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + more)
        return started

    return start_adapted


def await_gcs(command: Sequence[str], started: Any) -> None:
    """Return once the GCS that was just started listens at its port.

    Args:
        command: Its command line.
        started: Ray's record of its process.

    Raises:
        ForeignListener: Another user's process listens there; it must not be sent the token.
        RuntimeError: The GCS has ended.
    """
    port = int(next((word.partition("=")[2] for word in command if word.startswith(ray_internals.GCS_PORT)), 0))
    until = time.monotonic() + GCS_S
    while port and not has_own_listener(LOOPBACK, port) and time.monotonic() < until:
        # Nothing is connected to a port that is free now, and that another user could take.
        if started.process.poll() is not None:
            raise RuntimeError(f"Ray's GCS ended with code {started.process.returncode} before it listened at {port}")
        time.sleep(GCS_POLL_S)


def adapt_kill(kill_all: Callable[..., Any], spectators: Sequence[Any]) -> Callable[..., Any]:
    """Return Ray's ``Node.kill_all_processes``, which ends without asking the spectators and the GCS to leave."""

    def kill_adapted(self: Any, *args: Any, **named: Any) -> None:
        _kill(spectators)
        gcs = self.all_processes.pop(ray_internals.GCS, [])
        kill_all(self, *args, **named)
        # Told in another form by another Ray, it is left to the bootstrap, which ends all that is left.
        with contextlib.suppress(AttributeError):
            _kill([started.process for started in gcs])
        # Wherever Ray calls this it ends next, with 1; what Python has to do before that would take 0.2 s.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    return kill_adapted


def adapt_get_node(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Return Ray's ``get_node``, during which signals are heard."""

    def get_node_adapted(*args: Any, **named: Any) -> Any:
        # Of a node that is not registered yet it asks once a second, and the main thread would be deaf for as long: a
        # job that is over by then would wait until its Ray is killed.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(get_node, *args, **named).result()

    return get_node_adapted


def postpone_dashboard(port: DashboardPort | None, agents: RayAgents) -> None:
    """Make Ray start the monitor, the dashboard and the agents of a node when they are wanted, once it is registered.

    Ray watches the dashboard once it answers: one that does not come up is left out, one that ends later ends the node.

    Args:
        port: The first connection to it starts the dashboard. None starts the dashboard with the node.
        agents: Those of the node.
    """
    parts = (ray_internals.INITIALIZE, ray_internals.START_MONITOR, ray_internals.START_DASHBOARD)
    # All of them or none: with a part alone the dashboard would never start.
    if any(part.find() is None for part in parts):
        return
    waiting: list[Callable[[Any], object]] = []
    ray_internals.START_MONITOR.replace(lambda start: lambda self: waiting.append(start))
    ray_internals.START_DASHBOARD.replace(lambda start: lambda self, **named: waiting.append(partial(start, **named)))
    agents.postpone()
    ray_internals.INITIALIZE.replace(lambda initialize: adapt_initialize(initialize, waiting, port, agents))


def adapt_initialize(
    initialize: Callable[..., None],
    waiting: Sequence[Callable[[Any], object]],
    port: DashboardPort | None,
    agents: RayAgents,
) -> Callable[..., None]:
    """Return Ray's ``Node.__init__``, after which the functions in ``waiting`` are called once they are wanted."""

    def initialize_adapted(self: Any, *args: Any, **named: Any) -> None:
        initialize(self, *args, **named)
        # Only the head's node has any.
        if waiting:
            _start_beside([lambda node: agents.ring(), *waiting], self, port)
        else:
            agents.follow_dashboard(self)

    return initialize_adapted


def _start_beside(starts: Sequence[Callable[[Any], object]], node: Any, port: DashboardPort | None) -> None:
    """Wait, start, and wait for what is started, in a thread: the others want to be watched meanwhile."""
    apart = copy.copy(node)

    def run() -> None:
        if port is not None:
            _publish(node, port)
            port.await_caller()
            port.pass_test()
        for start in starts:
            apart.all_processes = {}
            try:
                start(apart)
                if port is not None:
                    _await_answer(apart.all_processes.get(ray_internals.DASHBOARD, []), port)
                # Another dictionary, because this one may just be gone through.
                node.all_processes = node.all_processes | apart.all_processes
            except Exception:
                traceback.print_exc()
        # With the thread that has started them, the kernel would end them.
        threading.Event().wait()

    threading.Thread(target=run, daemon=True, name="dashboard").start()


def _publish(node: Any, port: DashboardPort) -> None:
    """Publish the dashboard's address in the GCS: a client that connects waits until the dashboard has started.

    Without the address, Ray's State API, which Ray Train uses, fails until the dashboard has started.
    """
    client, key, namespace = (
        part.find()
        for part in (ray_internals.NODE_CLIENT, ray_internals.DASHBOARD_ADDRESS, ray_internals.DASHBOARD_NAMESPACE)
    )
    if client is None or key is None or namespace is None:
        return
    # As the dashboard itself writes it.
    host = port.host if port.host == LOOPBACK else node.node_ip_address
    try:
        client(node).internal_kv_put(key.encode(), f"{host}:{port.port}".encode(), True, namespace)
    except Exception:
        traceback.print_exc()


def _await_answer(started: Sequence[Any], port: DashboardPort) -> None:
    """Return once the dashboard that was just started answers: Ray takes the key of ``_publish`` for that.

    Raises:
        RuntimeError: It does not come up.
    """
    until = time.monotonic() + DASHBOARD_S
    for process in (each.process for each in started):
        while not _answers(port.port):
            if process.poll() is not None or time.monotonic() > until:
                _kill([process])
                raise RuntimeError("the dashboard has not come up; the node goes on without it")
            time.sleep(ANSWER_POLL_S)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_S)
    try:
        connection.request("HEAD", "/")
        return bool(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _kill(spectators: Sequence[Any]) -> None:
    for process in spectators:
        if process.poll() is None:
            # The dashboard runs parts of itself as processes of their own.
            for pid in (process.pid, *descendants(process.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
