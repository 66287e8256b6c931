"""``ray start`` with changes for which Ray has no options.

Run as ``python -m raysm.bootstrap.ray_start [--wait] [--workers=N] start ...``, with the arguments of the ``ray``
command. The changes:

- There is no Ray Client server, which would open one more port on the head and take 90 MB.
- ``N`` workers are started before the first task, instead of one for each CPU, because an idle worker wakes up a
  hundred times a second.
- The *spectators* (the dashboard, the log monitor, the autoscaler's monitor) run at a low priority. At the end they are
  killed, because Ray would wait for them to exit. The GCS is killed too, after the raylet, because its data is not
  needed any more and it can take a second to exit.
- The dashboard and the autoscaler's monitor start at the first connection to the dashboard's port, on which this
  process listens from the beginning (``handed_socket``). Otherwise Ray would start the raylet only after the dashboard
  answers, two seconds later, and both would take 5 s of a core, which is more than most short jobs use.
- On the head, no client connects to the GCS before a process of this user listens at its port, because Ray's clients
  send the token to any process that listens there.
- The raylet's agents start only when they are needed (``ray_agents``). Together they take 2 s of a core, and the raylet
  registers its node only after them.
- The modules of other ``ray`` commands, which take half of the start time, are not imported.
- On the head, this process serves the list of registered nodes (``gcs_state``), because another process would have to
  import Ray too.
- With ``--wait``, this process imports Ray at once, but reads the cluster's address later from stdin, so that the head
  and its workers import Ray at the same time.
- A joining node polls ten times a second for the head's node, which must be registered first; Ray would poll every 2 s.

All names of Ray that this needs are in ``ray_internals``. If one is missing, its change is left out; only without the
command itself the node cannot start.
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
"""Option, before the arguments of ``ray``: the number of workers to start before the first task."""
HEAD = "--head"
ADDRESS = "--address="
"""Option of ``ray start``: the address of the GCS to join."""
NICE = 19
"""The lowest priority."""
DASHBOARD_NICE = 5
"""Gives the dashboard a quarter of a core that a training (nice 0) keeps busy. At the lowest priority it would take
minutes to start, but Ray waits for only one."""
LOOPBACK = "127.0.0.1"
GCS_S = 60.0
"""Seconds to wait until the GCS listens, which takes 0.2 s on an idle machine."""
GCS_POLL_S = 0.01
DASHBOARD_S = 60.0
"""Ray's own limit for its dashboard."""
ANSWER_S = 5.0
ANSWER_POLL_S = 0.2
HEAD_S = 30.0
"""Seconds to wait for the head's node; afterwards Ray itself looks for it and reports the error."""


def main() -> None:
    """Run the ``ray`` command with the changes."""
    workers = None
    waits = sys.argv[1:2] == [WAIT]
    if waits:
        del sys.argv[1]
    if len(sys.argv) > 1 and sys.argv[1].startswith(WORKERS):
        workers = int(sys.argv.pop(1).removeprefix(WORKERS))
    # Ray starts the Ray Client server unless this function returns an error.
    ray_internals.RAY_CLIENT.replace(lambda _: lambda: ImportError("raysm uses no Ray Client"))
    spectators: list[Any] = []
    dashboard_port = _listen_for_dashboard() if HEAD in sys.argv else None
    ray_internals.START_PROCESS.replace(lambda start: adapt_start(start, workers, spectators, dashboard_port))
    ray_internals.KILL_ALL.replace(lambda kill_all: adapt_kill(kill_all, spectators))
    ray_internals.GET_NODE.replace(adapt_get_node)
    postpone_dashboard(dashboard_port, RayAgents())
    for module in ray_internals.OTHER_COMMANDS:
        sys.modules[module] = None  # type: ignore[assignment]  # makes an import of the module fail
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
    # Ray's processes inherit stdin, and must not hold the bootstrap's pipe open.
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
        start: Ray's own function.
        workers: Number of workers to start before the first task; None is Ray's choice.
        spectators: A list to which the spectators' processes are added; their priority is lowered.
        port: The listener that the dashboard takes over.
    """

    def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
        if workers is not None:
            command = [
                f"{ray_internals.PRESTART}{workers}" if word.startswith(ray_internals.PRESTART) else word
                for word in command
            ]
        address = _value(ray_internals.GCS_ADDRESS, command) if process_type == ray_internals.RAYLET else ""
        if address:
            # Inherited by workers; without it, Ray's State API in a task would use any Ray of this machine, or none.
            os.environ["RAY_ADDRESS"] = address  # noqa: TID251  environment would import half of raysm
        if process_type == ray_internals.DASHBOARD and port is not None:
            with port.as_stdin():
                started = start(port.command(command), process_type, *args, **named)
        else:
            started = start(command, process_type, *args, **named)
        if process_type == ray_internals.GCS:
            await_gcs(command, started)
        if process_type in ray_internals.SPECTATORS:
            # The node must start even if the process has ended already, or if another Ray has other attributes.
            with contextlib.suppress(OSError, AttributeError):
                spectators.append(started.process)
                more = DASHBOARD_NICE if process_type == ray_internals.DASHBOARD else NICE
                os.setpriority(os.PRIO_PROCESS, started.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + more)
        return started

    return start_adapted


def await_gcs(command: Sequence[str], started: Any) -> None:
    """Return when the GCS that was just started listens at its port.

    Args:
        command: Its command line.
        started: Ray's record of its process.

    Raises:
        ForeignListener: Another user's process listens there, which must not get the token.
        RuntimeError: The GCS has ended.
    """
    port = int(next((word.partition("=")[2] for word in command if word.startswith(ray_internals.GCS_PORT)), 0))
    until = time.monotonic() + GCS_S
    while port and not has_own_listener(LOOPBACK, port) and time.monotonic() < until:
        if started.process.poll() is not None:
            raise RuntimeError(f"Ray's GCS ended with code {started.process.returncode} before it listened at {port}")
        time.sleep(GCS_POLL_S)


def adapt_kill(kill_all: Callable[..., Any], spectators: Sequence[Any]) -> Callable[..., Any]:
    """Return Ray's ``Node.kill_all_processes``, adapted to kill the spectators and the GCS without waiting for them."""

    def kill_adapted(self: Any, *args: Any, **named: Any) -> None:
        _kill(spectators)
        gcs = self.all_processes.pop(ray_internals.GCS, [])
        kill_all(self, *args, **named)
        # If another Ray has other attributes, the bootstrap ends the GCS with all remaining processes.
        with contextlib.suppress(AttributeError):
            _kill([started.process for started in gcs])
        # Ray always exits with 1 after this call; Python's own exit would take 0.2 s longer.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    return kill_adapted


def adapt_get_node(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Return Ray's ``get_node``, adapted so that the main thread can handle signals."""

    def get_node_adapted(*args: Any, **named: Any) -> Any:
        # While the node is not registered yet, get_node polls once a second, during which the main thread would not
        # handle SIGTERM: a job that has ended by then would wait until its Ray is killed.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(get_node, *args, **named).result()

    return get_node_adapted


def postpone_dashboard(port: DashboardPort | None, agents: RayAgents) -> None:
    """Make Ray start the monitor, the dashboard and the agents of a node only when they are needed.

    If the dashboard does not start, the node continues without it. Once the dashboard has answered, Ray watches it, and
    its end ends the node.

    Args:
        port: The listener whose first connection starts the dashboard; None starts the dashboard with the node.
        agents: The agents of the node.
    """
    parts = (ray_internals.INITIALIZE, ray_internals.START_MONITOR, ray_internals.START_DASHBOARD)
    # If only some of them were replaced, the dashboard would never start.
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
    """Return Ray's ``Node.__init__``, adapted to call the functions in ``waiting`` later, when they are needed."""

    def initialize_adapted(self: Any, *args: Any, **named: Any) -> None:
        initialize(self, *args, **named)
        # Only the head's node has a dashboard and a monitor.
        if waiting:
            _start_beside([lambda node: agents.ring(), *waiting], self, port)
        else:
            agents.follow_dashboard(self)

    return initialize_adapted


def _start_beside(starts: Sequence[Callable[[Any], object]], node: Any, port: DashboardPort | None) -> None:
    """In a thread, wait for a connection and call ``starts``; the main thread watches the processes meanwhile."""
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
                # A new dictionary, because the main thread may be iterating over the old one.
                node.all_processes = node.all_processes | apart.all_processes
            except Exception:
                traceback.print_exc()
        # The thread must not end, because the kernel would then kill the processes that it has started.
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
    # The dashboard itself writes the address in this form.
    host = port.host if port.host == LOOPBACK else node.node_ip_address
    try:
        client(node).internal_kv_put(key.encode(), f"{host}:{port.port}".encode(), True, namespace)
    except Exception:
        traceback.print_exc()


def _await_answer(started: Sequence[Any], port: DashboardPort) -> None:
    """Return when the dashboard that was just started answers; Ray itself only checks the key of ``_publish``.

    Raises:
        RuntimeError: The dashboard does not start.
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
            # The dashboard has child processes.
            for pid in (process.pid, *descendants(process.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
