"""``ray start`` with what Ray itself has no switch for.

Run as ``python -m raysm.bootstrap.ray_start [--workers=N] start ...``, with the arguments of the ``ray`` command:

- No Ray Client server. It would open one more port on the head and cost a process of 90 MB; nothing of raysm uses it.
- ``N`` workers are started ahead of the first task, instead of one for each CPU: the others would wait for nothing,
  and each wakes a hundred times a second.
- What only shows and tells (the dashboard, the log monitor, the autoscaler's monitor) lets others go first.

Where a name of Ray's goes away, its part is merely left out.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["WORKERS", "adapted", "main"]

WORKERS = "--workers="
"""Before the arguments of ``ray``: how many workers are started ahead."""
PRESTART = "--num_prestart_python_workers="
"""The raylet's own option."""
SPECTATORS = ("dashboard", "log_monitor", "monitor")
"""Ray's names of the processes without which the work goes on."""
NICE = 10


def main() -> None:
    """Be the ``ray`` command."""
    workers = None
    if len(sys.argv) > 1 and sys.argv[1].startswith(WORKERS):
        workers = int(sys.argv.pop(1).removeprefix(WORKERS))
    utilities: Any = importlib.import_module("ray._private.utils")
    # Ray starts the server wherever gRPC can be imported. If this name goes away, the server is merely started.
    utilities.get_ray_client_dependency_error = lambda: ImportError("raysm uses no Ray Client")
    services: Any = importlib.import_module("ray._private.services")
    start = getattr(services, "start_ray_process", None)
    if start is not None:
        services.start_ray_process = adapted(start, workers)
    command: Any = importlib.import_module("ray.scripts.scripts")
    command.main()


def adapted(start: Callable[..., Any], workers: int | None) -> Callable[..., Any]:
    """Return Ray's ``start_ray_process``, which starts ``workers`` ahead (None: Ray's choice) and makes some nice."""

    def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
        if workers is not None:
            command = [f"{PRESTART}{workers}" if word.startswith(PRESTART) else word for word in command]
        started = start(command, process_type, *args, **named)
        if process_type in SPECTATORS:
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, started.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        return started

    return start_adapted


if __name__ == "__main__":
    main()
