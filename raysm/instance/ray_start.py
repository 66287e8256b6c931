"""``ray start`` with changes for which Ray has no options.

Run as ``python -m raysm.instance.ray_start [--plain] [--wait] [--workers=N] start ...``, with the
arguments of the ``ray`` command. The changes:

- There is no Ray Client server, which would open one more port on the head and take 90 MB.
- ``N`` workers are started before the first task, instead of one for each CPU, because an idle
  worker wakes up a hundred times a second.
- The dashboard and the autoscaler's monitor start at the first connection to the dashboard's port,
  on which this process listens from the beginning (``handed_socket``). Otherwise Ray would start
  the raylet only after the dashboard answers, two seconds later, and both would take 5 s of a core,
  which is more than most short jobs use.
- The raylet's two agents are replaced by a ``stand_in`` each until they are needed. Together they
  take 2 s of a core, and the raylet registers its node only after them. The dashboard's agent
  reports its node to the dashboard and runs programs of Ray's Jobs API; it starts with the
  dashboard. The runtime environment agent starts with the first task, actor or driver that has a
  runtime environment.
- On the head, no client connects to the GCS before a process of this user listens at its port,
  because Ray's clients send the token to any process that listens there.
- The modules of other ``ray`` commands and the dashboard's packages, half of the start time, are
  not imported. This process, the log monitor, the agents, and the workers with their setup import
  Ray without packages for rare cases (``ray_imports``).
- On the head, this process serves the list of registered nodes (``gcs_state``), because another
  process would have to import Ray too.
- With ``--wait``, this process imports Ray at once, but reads the cluster's address later from
  stdin, so that the head and its workers import Ray at the same time.
- Several nodes may share loopback, for which Ray takes its variable for Windows and macOS as a sign
  of a single node.
- A joining node polls often for the head's node, which must be registered first; Ray would poll
  every 2 s.
- The folder that ``TPU_LOG_DIR`` names is made: without it, Ray prints what it finds in
  ``/tmp/tpu_logs`` as lines of the job.

All names of Ray that this needs are in ``ray_internals``. If one is missing, its change is left
out; only without the command itself the node cannot start. If a name is there and means something
else in a later release, the node may end or hang. So if it has not registered after
``REGISTERS_S``, or has ended before, this program runs again with ``--plain``, without these
changes.
"""

import contextlib
import copy
import http.client
import importlib.util
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from raysm.core.protocol.connections import has_own_listener
from raysm.core.protocol.names import LABEL_HOST
from raysm.errors import RaysmError
from raysm.instance import ray_imports, ray_internals
from raysm.instance.children import WAIT, descendants
from raysm.instance.gcs_state import (
    CALL_TIMEOUT_S,
    await_first,
    latest_by_host,
    nodes_socket,
    pending_socket,
    tell_nodes,
    tell_pending,
)
from raysm.instance.handed_socket import DashboardPort

LOWEST_PRIORITY = 19
PLAIN = "--plain"
REGISTERS_S = 30.0
"""Seconds that a node has to register after Ray was imported and, on a worker, the head's GCS was
reached."""
END_POLL_S = 0.02
WORKERS = "--workers="
"""Option, before the arguments of ``ray``: the number of workers to start before the first task."""
HEAD = "--head"
ADDRESS = "--address="
LOOPBACK = "127.0.0.1"
GCS_S = 60.0
GCS_POLL_S = 0.01
DASHBOARD_S = 60.0
"""Ray's own limit for its dashboard."""
ANSWER_S = 5.0
ANSWER_POLL_S = 0.2
HEAD_S = 30.0
"""Seconds to wait for the head's node; afterwards Ray itself looks for it and reports the error."""
# -I -S: Python then starts in 15 ms, because it does not read the packages of a virtual
# environment.
STAND_IN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("stand_in.py")))
LOOK_S = 1.0
"""Seconds between looks for new nodes, once the dashboard has started; it takes 5 s to start
itself."""


def main() -> None:
    words = sys.argv[1:]
    is_plain = _take(PLAIN)
    waits = _take(WAIT)
    workers = next(
        (int(word.removeprefix(WORKERS)) for word in words if word.startswith(WORKERS)), None
    )
    sys.argv[1:] = [word for word in sys.argv[1:] if not word.startswith(WORKERS)]
    if is_plain:
        # What the attempt before has started and left.
        _end_children()
    try:
        command = _find_plain_command() if is_plain else _find_command(workers)
    except RaysmError:
        raise
    except Exception as error:  # a release of Ray that differs in a way that nobody has seen yet
        if is_plain:
            raise
        traceback.print_exc()
        _start_plainly(f"could not be prepared ({type(error).__name__})", words)
    if HEAD in sys.argv:
        folder = Path(_option("--temp-dir="))
        port = int(_option("--port="))
        for tell, where in (
            (tell_nodes, nodes_socket(folder, port)),
            (tell_pending, pending_socket(folder, port)),
        ):
            threading.Thread(target=tell, args=(where, f"{LOOPBACK}:{port}"), daemon=True).start()
    # raysm.instance.environment would import half of raysm.
    if tpu_logs := os.environ.get("TPU_LOG_DIR"):  # noqa: TID251
        os.makedirs(tpu_logs, exist_ok=True)
    if waits:
        sys.argv.append(f"{ADDRESS}{_read_address()}")
    if head := _option(ADDRESS):
        await_first(head, HEAD_S)
    if is_plain:
        command()
    else:
        _run_or_start_plainly(command)


def _take(word: str) -> bool:
    """Remove this program's option from the start of the arguments; return whether it was there."""
    was_there = sys.argv[1:2] == [word]
    if was_there:
        del sys.argv[1]
    return was_there


def _find_command(workers: int | None) -> Callable[[], object]:
    with ray_imports.importing_later():
        # Ray starts the Ray Client server unless this function returns an error.
        ray_internals.RAY_CLIENT.replace(lambda _: lambda: ImportError("raysm uses no Ray Client"))
        dashboard_port = None
        can_postpone = ray_internals.can_postpone_dashboard()
        if can_postpone:
            dashboard_port = _listen_for_dashboard() if HEAD in sys.argv else None
            postpone_dashboard(dashboard_port)
        postpones_agents = can_postpone and ray_internals.have(
            ray_internals.PORT_FILES, ray_internals.AGENT_PORT
        )
        ray_internals.START_PROCESS.replace(
            lambda start: adapt_start(start, workers, dashboard_port, postpones_agents)
        )
        for module in ray_internals.OTHER_COMMANDS:
            # An import of the module then fails.
            sys.modules[module] = None  # type: ignore[assignment]
        command: Callable[[], object] = ray_internals.COMMAND.find()
        ray_internals.SETTINGS_OF_START.replace(allow_several_nodes)
        # The dashboard needs one of them.
        for module in ray_internals.OTHER_COMMANDS:
            del sys.modules[module]
    defer_dashboard_packages()
    return command


def _find_plain_command() -> Callable[[], object]:
    command: Callable[[], object] = ray_internals.COMMAND.find()
    if _option("--node-ip-address=") == LOOPBACK:
        # On a machine with other users: only what several nodes on loopback, and the token's
        # secrecy, need.
        ray_internals.SETTINGS_OF_START.replace(allow_several_nodes)
        ray_internals.START_PROCESS.replace(await_gcs_after)
    return command


def _run_or_start_plainly(command: Callable[[], object]) -> None:
    """Run Ray's command; if that fails, start Ray plainly.

    The command has failed if it ended before its node was registered, or has not registered it.
    """
    is_registered = threading.Event()
    if can_start_plainly():
        threading.Thread(target=_await_registration, args=(is_registered,), daemon=True).start()
    try:
        command()
    except RaysmError:
        raise
    except (Exception, SystemExit) as error:
        has_failed = not isinstance(error, SystemExit) or error.code not in (None, 0)
        if not has_failed or is_registered.is_set() or _is_registered() or not can_start_plainly():
            raise
        traceback.print_exc()
        _start_plainly(
            f"ended before it was registered ({type(error).__name__}: {error})", sys.argv[1:]
        )


def can_start_plainly() -> bool:
    # Elsewhere the processes that Ray has started cannot be found and ended.
    return sys.platform.startswith("linux")


def _await_registration(is_registered: threading.Event) -> None:
    until_s = time.monotonic() + REGISTERS_S
    while time.monotonic() < until_s:
        time.sleep(LOOK_S)
        if _is_registered():
            is_registered.set()
            return
    _start_plainly(f"has not registered within {REGISTERS_S:g} s", sys.argv[1:])


def _is_registered() -> bool:
    """Return whether the GCS has this host's node; False also if it is busy or not listening."""
    address = _option(ADDRESS) or f"{LOOPBACK}:{_option('--port=')}"
    labels = dict(label.partition("=")[::2] for label in _option("--labels=").split(","))
    host, _, port = address.rpartition(":")
    with contextlib.suppress(Exception):
        if has_own_listener(host, int(port)) and _connects(host, int(port)):
            client = ray_internals.GCS_CLIENT.find()(address=address)
            return labels.get(LABEL_HOST) in latest_by_host(
                client.get_all_node_info(timeout=CALL_TIMEOUT_S)
            )
    return False


def _start_plainly(problem: str, words: Sequence[str]) -> NoReturn:
    """Replace this process by one that runs ``ray start`` almost without changes."""
    text = f"its Ray node {problem}; it is started again by plain `ray start`"
    sys.stderr.write(f"raysm: warning: {text}, which takes some seconds more\n")
    sys.stderr.flush()
    os.environ.pop("RAY_ADDRESS", None)  # noqa: TID251  as ``adapt_start`` has set it
    words = [word for word in words if not word.startswith(WORKERS)]
    os.execv(
        sys.executable,
        [sys.executable, "-u", "-P", "-m", "raysm.instance.ray_start", PLAIN, *words],
    )


def _end_children() -> None:
    # The processes of the node have no other parent, and this process has not started any yet.
    while children := descendants(os.getpid()):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(END_POLL_S)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def allow_several_nodes(settings: Any) -> Any:
    """Return the constants with which ``ray start`` allows a second node on loopback."""
    return types.SimpleNamespace(**{**vars(settings), "ENABLE_RAY_CLUSTER": True})


def defer_dashboard_packages() -> None:
    """Let Ray find a stand-in for the module that imports the dashboard's packages.

    This happens only if all packages of the dashboard are installed.
    """
    module = ray_internals.DASHBOARD_PACKAGES
    spec = importlib.util.find_spec(module)
    text = Path(spec.origin).read_text() if spec is not None and spec.origin else ""
    packages = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    if packages and all(importlib.util.find_spec(package) for package in packages):
        sys.modules[module] = ray_imports.Later(module)


def _read_address() -> str:
    """Return the line with the cluster's address, which the parent process writes to stdin."""
    address = sys.stdin.readline().strip()
    if not address:
        sys.exit("raysm: stdin was closed before the address of the cluster arrived")
    # Ray's processes inherit stdin, and must not hold the bootstrap's pipe open.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    return address


def _option(name: str, words: Sequence[str] = sys.argv) -> str:
    return next((word.removeprefix(name) for word in words if word.startswith(name)), "")


def _listen_for_dashboard() -> DashboardPort | None:
    host = _option("--dashboard-host=")
    port = int(_option("--dashboard-port=") or 0)
    try:
        return DashboardPort(host, port)
    except OSError as error:
        sys.stderr.write(
            f"raysm: warning: cannot listen at the dashboard's port {port}: {error.strerror}\n"
        )
        return None


def adapt_start(
    start: Callable[..., Any],
    workers: int | None,
    port: DashboardPort | None,
    postpones_agents: bool,
) -> Callable[..., Any]:
    """Return Ray's ``start_ray_process``, adapted; the dashboard takes over ``port``."""

    def adapt(word: str) -> str:
        if workers is not None and word.startswith(ray_internals.PRESTART):
            return f"{ray_internals.PRESTART}{workers}"
        name, separator, text = word.partition("=")
        if name == ray_internals.WORKER_COMMAND:
            return name + separator + subprocess.list2cmdline(lean(shlex.split(text)))
        return stand_in_for(word) if postpones_agents else word

    def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
        if process_type == ray_internals.RAYLET:
            command = [adapt(word) for word in command]
            if address := _option(ray_internals.GCS_ADDRESS, command):
                # Inherited by workers; without it, Ray's State API in a task would use any Ray of
                # this machine. raysm.instance.environment would import half of raysm.
                os.environ["RAY_ADDRESS"] = address  # noqa: TID251
        if process_type == ray_internals.DASHBOARD and port is not None:
            with port.as_stdin():
                return start(port.command(command), process_type, *args, **named)
        started = start(lean(command), process_type, *args, **named)
        if process_type == ray_internals.GCS:
            await_gcs(command, started)
        if process_type == ray_internals.LOG_MONITOR:
            # Its imports would take a core from the node's start for 0.6 s. It may have ended
            # already.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, started.process.pid, LOWEST_PRIORITY)
        return started

    return start_adapted


def stand_in_for(word: str) -> str:
    """Return a word of a raylet's command line, with a stand-in if it is an agent's command."""
    name, separator, text = word.partition("=")
    agent = shlex.split(text) if name in ray_internals.AGENTS else []
    # Another form than "python -u program.py" is Ray's memory profiler, which must stay as it is.
    if agent[1:2] != ["-u"] or not agent[2].endswith(".py"):
        return word
    # Ray quotes the command in this way, and the raylet parses it.
    return (
        name + separator + subprocess.list2cmdline([*STAND_IN, *ray_internals.AGENTS[name], *agent])
    )


def await_gcs_after(start: Callable[..., Any]) -> Callable[..., Any]:
    """Return Ray's ``start_ray_process``, which returns from a GCS only when it listens."""

    def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
        started = start(command, process_type, *args, **named)
        if process_type == ray_internals.GCS:
            await_gcs(command, started)
        return started

    return start_adapted


def lean(words: Sequence[str]) -> list[str]:
    """Return a command line of Ray with ``ray_imports`` first, if the program imports Ray first."""
    name = os.path.basename
    before = {word: [ray_imports.__file__] for word in words if name(word) in ray_internals.LEAN}
    # The raylet looks for a file of this name in second place.
    setup = os.path.join(os.path.dirname(ray_imports.__file__), ray_internals.SETUP_WORKER)
    words = [setup if name(word) == ray_internals.SETUP_WORKER else word for word in words]
    return [each for word in words for each in (*before.get(word, ()), word)]


def await_gcs(command: Sequence[str], started: Any) -> None:
    """Return when the GCS that was just started listens.

    Raises:
        ForeignListener: Another user's process listens.
    """
    port = int(
        next(
            (word.partition("=")[2] for word in command if word.startswith(ray_internals.GCS_PORT)),
            0,
        )
    )
    until = time.monotonic() + GCS_S
    # Connect first, because the kernel's list of listeners takes 10 ms to read.
    while (
        port
        and not (_connects(LOOPBACK, port) and has_own_listener(LOOPBACK, port))
        and time.monotonic() < until
    ):
        if started.process.poll() is not None:
            raise RuntimeError(
                f"Ray's GCS ended with code {started.process.returncode} "
                f"before it listened at {port}"
            )
        time.sleep(GCS_POLL_S)


def _connects(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def postpone_dashboard(port: DashboardPort | None) -> None:
    """Make Ray start the monitor, the dashboard and its agents at a first connection to ``port``.

    With None they start later.

    If the dashboard does not start, the node continues without it. Once the dashboard has answered,
    Ray watches it, and its end ends the node.
    """
    waiting: list[Callable[[Any], object]] = []
    ray_internals.START_MONITOR.replace(lambda start: lambda self: waiting.append(start))
    ray_internals.START_DASHBOARD.replace(
        lambda start: lambda self, **named: waiting.append(partial(start, **named))
    )

    def adapt_initialize(initialize: Callable[..., None]) -> Callable[..., None]:
        def initialize_adapted(self: Any, *args: Any, **named: Any) -> None:
            initialize(self, *args, **named)
            # Only the head's node has a dashboard and a monitor.
            if waiting:
                threading.Thread(
                    target=_start_beside, args=(waiting, self, port), daemon=True
                ).start()

        return initialize_adapted

    ray_internals.INITIALIZE.replace(adapt_initialize)


def _start_beside(
    starts: Sequence[Callable[[Any], object]], node: Any, port: DashboardPort | None
) -> None:
    """Wait for a connection and call ``starts``.

    The main thread watches the node's processes meanwhile.
    """
    apart = copy.copy(node)
    if port is not None:
        _publish(node, port)
        port.await_caller()
        port.pass_test()
    threading.Thread(target=_call_agents, args=(node,), daemon=True).start()
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
    # This thread must not end, because the kernel would then kill the processes that it has
    # started.
    threading.Event().wait()


def _call_agents(node: Any) -> None:
    """Start the dashboard's agent of every node by a connection to its stand-in.

    Later nodes are included. Never return.
    """
    called = set()
    while True:
        nodes: Mapping[Any, Any] = {}
        with contextlib.suppress(Exception):  # the GCS may be busy
            nodes = ray_internals.NODE_CLIENT.find()(node).get_all_node_info(timeout=CALL_TIMEOUT_S)
        for node_id, info in nodes.items():
            if node_id not in called and info.state == ray_internals.ALIVE:
                with contextlib.suppress(OSError):
                    where = info.node_manager_address, info.dashboard_agent_listen_port
                    socket.create_connection(where, ANSWER_S).close()
                    called.add(node_id)
        time.sleep(LOOK_S)


def _publish(node: Any, port: DashboardPort) -> None:
    """Publish the dashboard's address in the GCS.

    A client that connects waits until the dashboard has started.

    Without the address, Ray's State API, which Ray Train uses, fails until the dashboard has
    started.
    """
    client, key, namespace = (
        part.find()
        for part in (
            ray_internals.NODE_CLIENT,
            ray_internals.DASHBOARD_ADDRESS,
            ray_internals.DASHBOARD_NAMESPACE,
        )
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
    """Return when the dashboard that was just started answers.

    Ray itself only checks the key of ``_publish``.
    """
    until = time.monotonic() + DASHBOARD_S
    for process in (each.process for each in started):
        while not _answers(port.port):
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
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


if __name__ == "__main__":
    main()
