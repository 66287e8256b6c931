"""Start a raylet's two agents only when they are needed; most jobs never need them.

``RayAgents.adapt_start`` replaces each agent on a raylet's command line by a ``stand_in``, and adds a FIFO, the bell,
that wakes up the dashboard's agent. Both agents together take 2 s of a core on each node, and the raylet registers its
node only after they have started.

- The dashboard's agent reports its node to the dashboard and runs programs that are submitted to Ray's Jobs API. It
  starts with the dashboard: on the head at once, on other nodes when the GCS knows that the dashboard was started.
- The runtime environment agent prepares the runtime environment of a task, an actor or a driver. It starts with the
  first one that has a runtime environment.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raysm.bootstrap import ray_internals
from raysm.bootstrap.stand_in import UNTIL_CALLED, UNTIL_RUNG, option

STAND_IN = Path(__file__).with_name("stand_in.py")
# -I -S: Python then starts in 15 ms, because it does not read the packages of a virtual environment.
PROGRAM = (sys.executable, "-I", "-S", str(STAND_IN))
LOOK_S = 1.0
"""Seconds between checks of a worker's node for the dashboard. A thousand nodes then make a thousand calls a second to
the GCS, which can answer ten thousand. The dashboard itself takes 5 s to start."""


class RayAgents:
    """The agents of the node that this process starts.

    Attributes:
        bell: The file descriptor that wakes up the dashboard's agent; None if there is none.
    """

    def __init__(self, look_s: float = LOOK_S) -> None:
        """Create it; ``follow_dashboard`` checks every ``look_s`` seconds."""
        self.bell: int | None = None
        self._look_s = look_s

    def postpone(self) -> None:
        """Make Ray start raylets with stand-ins, which write the agents' port files."""
        if ray_internals.PORT_FILES.find() is not None:
            ray_internals.START_PROCESS.replace(self.adapt_start)

    def adapt_start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Return Ray's ``start_ray_process``, which starts raylets with stand-ins."""

        def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
            if process_type == ray_internals.RAYLET:
                command = [self._adapted(word) for word in command]
            return start(command, process_type, *args, **named)

        return start_adapted

    def ring(self) -> None:
        """Start the dashboard's agent, unless it runs already."""
        if self.bell is not None:
            os.write(self.bell, b"!")

    def follow_dashboard(self, node: Any) -> None:
        """Ring when the dashboard of the node's cluster has started, in a thread."""
        if self.bell is not None:
            threading.Thread(target=self._ring_with_dashboard, args=(node,), daemon=True, name="agents").start()

    def _ring_with_dashboard(self, node: Any) -> None:
        client, namespace = ray_internals.NODE_CLIENT.find(), ray_internals.DASHBOARD_NAMESPACE.find()
        if client and namespace:
            while not _has(client(node), ray_internals.DASHBOARD_STARTED, namespace):
                time.sleep(self._look_s)
        self.ring()

    def _adapted(self, word: str) -> str:
        name, separator, text = word.partition("=")
        name += separator
        if name not in (ray_internals.DASHBOARD_AGENT, ray_internals.RUNTIME_ENV_AGENT):
            return word
        agent = shlex.split(text)
        # Another form than "python -u program.py" is Ray's memory profiler, which must stay as it is.
        if agent[1:2] != ["-u"] or not agent[2].endswith(".py"):
            return word
        way = [UNTIL_CALLED, ray_internals.RUNTIME_ENV_SERVICE]
        if name == ray_internals.DASHBOARD_AGENT:
            try:
                way = [UNTIL_RUNG, self._make_bell(agent), ",".join(ray_internals.AGENT_SERVICES)]
            except OSError:  # on a file system without FIFOs, the agent starts with its node
                return word
        # Ray quotes the command in this way, and the raylet parses it.
        return name + subprocess.list2cmdline([*PROGRAM, *way, *agent])

    def _make_bell(self, agent: Sequence[str]) -> str:
        path = os.path.join(option(agent, "--session-dir"), f"dashboard_agent_bell_{option(agent, '--node-id')}")
        os.mkfifo(path, 0o600)
        # O_RDWR, so that opening does not wait for the other end, and bytes written before it opens are kept.
        self.bell = os.open(path, os.O_RDWR)
        return path


def _has(client: Any, key: bytes, namespace: bytes) -> bool:
    # The GCS may be busy, or may end before the node; other code reports such errors.
    with contextlib.suppress(Exception):
        return client.internal_kv_get(key, namespace) is not None
    return False
