"""``ray start`` with what Ray itself has no switch for.

Run as ``python -m raysm.bootstrap.ray_start [--workers=N] [--dashboard-first] start ...``, with the arguments of the
``ray`` command:

- No Ray Client server. It would open one more port on the head and cost a process of 90 MB; nothing of raysm uses it.
- ``N`` workers are started ahead of the first task, instead of one for each CPU: the others would wait for nothing,
  and each wakes a hundred times a second.
- What only shows and tells (the dashboard, the log monitor, the autoscaler's monitor) lets others go first, and is
  killed at the end, where Ray would ask it to leave and wait for it.
- The dashboard and the autoscaler's monitor come after the node, unless told otherwise: Ray would wait for two seconds
  until the dashboard answers before it starts the raylet.
- The commands beside ``start`` are not imported: half of the time that the command takes to begin is theirs.
- A node that joins looks ten times a second for the head's, which has to be there first: Ray would look every 2 s.

Where a name of Ray's goes away, its part is merely left out.
"""

import contextlib
import copy
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from raysm.bootstrap.children import descendants
from raysm.bootstrap.registered import await_first

__all__ = ["COMMANDS", "DASHBOARD_FIRST", "WORKERS", "adapted", "later", "leaving", "main"]

WORKERS = "--workers="
"""Before the arguments of ``ray``: how many workers are started ahead."""
DASHBOARD_FIRST = "--dashboard-first"
"""There too: the node begins when the dashboard is there, which then takes no CPU from the workload."""
PRESTART = "--num_prestart_python_workers="
"""The raylet's own option."""
COMMANDS = ("ray.serve.scripts", "ray.dashboard.modules.job.cli", "ray.util.state.state_cli")
"""Modules of other commands, without which the ``ray`` command does."""
SPECTATORS = ("dashboard", "log_monitor", "monitor")
"""Ray's names of the processes without which the work goes on."""
NICE = 19
"""The least: the dashboard takes 5 s of a core to come up, beside the first tasks."""
HEAD_S = 30.0
"""How long a node looks for the head's before Ray looks itself, and says what is wrong."""


def main() -> None:
    """Be the ``ray`` command."""
    workers = None
    if len(sys.argv) > 1 and sys.argv[1].startswith(WORKERS):
        workers = int(sys.argv.pop(1).removeprefix(WORKERS))
    dashboard_first = sys.argv[1:2] == [DASHBOARD_FIRST]
    if dashboard_first:
        del sys.argv[1]
    utilities: Any = importlib.import_module("ray._private.utils")
    # Ray starts the server wherever gRPC can be imported. If this name goes away, the server is merely started.
    utilities.get_ray_client_dependency_error = lambda: ImportError("raysm uses no Ray Client")
    spectators: list[Any] = []
    services: Any = importlib.import_module("ray._private.services")
    start = getattr(services, "start_ray_process", None)
    if start is not None:
        services.start_ray_process = adapted(start, workers, spectators)
    node: Any = importlib.import_module("ray._private.node").Node
    leaving(node, spectators)
    if not dashboard_first:
        later(node)
    for module in COMMANDS:
        sys.modules[module] = None  # type: ignore[assignment]  # Python's way to say: not to be imported
    command: Any = importlib.import_module("ray.scripts.scripts")
    for word in sys.argv:
        if word.startswith("--address="):
            await_first(word.partition("=")[2], HEAD_S)
    command.main()


def adapted(start: Callable[..., Any], workers: int | None, spectators: list[Any]) -> Callable[..., Any]:
    """Return Ray's ``start_ray_process``, which starts ``workers`` ahead (None: Ray's choice) and makes some nice.

    Those are added to ``spectators``.
    """

    def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
        if workers is not None:
            command = [f"{PRESTART}{workers}" if word.startswith(PRESTART) else word for word in command]
        started = start(command, process_type, *args, **named)
        if process_type in SPECTATORS:
            with contextlib.suppress(OSError, AttributeError):
                spectators.append(started.process)
                os.setpriority(os.PRIO_PROCESS, started.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        return started

    return start_adapted


def leaving(node: Any, spectators: Sequence[Any]) -> None:
    """Make Ray's class ``node`` end without asking the spectators to leave."""
    kill_all = getattr(node, "kill_all_processes", None)
    if kill_all is None:
        return

    def kill_adapted(self: Any, *args: Any, **named: Any) -> None:
        _kill(spectators)
        kill_all(self, *args, **named)
        # Wherever Ray calls this it ends next, with 1; what Python has to do before that would take 0.2 s.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    node.kill_all_processes = kill_adapted


def later(node: Any) -> None:
    """Make Ray's class ``node`` start its monitor and dashboard once it is registered.

    Ray watches the dashboard from when it answers, as ever: one that does not come up is left out, one that ends later
    ends the node.
    """
    if not all(hasattr(node, name) for name in ("start_monitor", "start_api_server")):
        return
    initialize, start_monitor, start_dashboard = node.__init__, node.start_monitor, node.start_api_server
    waiting: list[Callable[[], None]] = []

    def initialize_adapted(self: Any, *args: Any, **named: Any) -> None:
        initialize(self, *args, **named)
        while waiting:
            waiting.pop(0)()

    node.__init__ = initialize_adapted
    node.start_monitor = lambda self: waiting.append(partial(start_monitor, self))
    node.start_api_server = lambda self, **named: waiting.append(partial(_beside, start_dashboard, self, named))


def _beside(start_dashboard: Callable[..., None], node: Any, named: dict[str, Any]) -> None:
    """Start the dashboard, and wait for it, in a thread: the others want to be watched meanwhile."""
    apart = copy.copy(node)
    apart.all_processes = {}

    def run() -> None:
        try:
            start_dashboard(apart, **named)
            # Another dictionary, because this one may just be gone through.
            node.all_processes = node.all_processes | apart.all_processes
        except Exception:
            traceback.print_exc()
        # With the thread that has started it, the kernel would end the dashboard.
        threading.Event().wait()

    threading.Thread(target=run, daemon=True, name="dashboard").start()


def _kill(spectators: Sequence[Any]) -> None:
    for process in spectators:
        if process.poll() is None:
            for pid in (process.pid, *descendants(process.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
