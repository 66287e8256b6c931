"""Start a raylet's two agents only when they are needed; most jobs never need them.

``adapt`` replaces the agents on a raylet's command line by a ``stand_in`` each, and adds a FIFO that wakes up the
dashboard's agent. Both agents together take 2 s of a core on each node, and the raylet registers its node only after
they have started.

- The dashboard's agent reports its node to the dashboard and runs what is submitted to Ray's Jobs API. It starts with
  the dashboard: on the head at once, on other nodes when the GCS knows that the dashboard was started.
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
# Isolated and without site: of the 15 ms that Python takes to begin, reading a venv's packages would be most.
PROGRAM = (sys.executable, "-I", "-S", str(STAND_IN))
LOOK_S = 1.0
"""How often a node that is not the head's looks for the dashboard: a thousand of them ask the GCS a thousand times a
second, of the ten thousand calls that it answers. The dashboard itself takes 5 s to come."""


class RayAgents:
    """The agents of the node that this process starts.

    Attributes:
        bell: The descriptor that wakes up the dashboard's agent; None before there is one.
    """

    def __init__(self, look_s: float = LOOK_S) -> None:
        """Start nothing; look for a dashboard elsewhere every ``look_s`` seconds."""
        self.bell: int | None = None
        self._look_s = look_s

    def postpone(self) -> None:
        """Make Ray start raylets with stand-ins."""
        ray_internals.START_PROCESS.replace(self.adapt_start)

    def adapt_start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Return Ray's ``start_ray_process``, which starts raylets with stand-ins."""

        def start_adapted(command: Sequence[str], process_type: str, *args: Any, **named: Any) -> Any:
            if process_type == ray_internals.RAYLET:
                command = [self._adapted(word) for word in command]
            return start(command, process_type, *args, **named)

        return start_adapted

    def ring(self) -> None:
        """Have the dashboard's agent started; twice is once."""
        if self.bell is not None:
            os.write(self.bell, b"!")

    def follow_dashboard(self, node: Any) -> None:
        """Ring once the dashboard of the node's cluster is there, and not wait for it."""
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
        # Python, -u, a program: anything else is Ray's memory profiler, which is to have what it asks for.
        if agent[1:2] != ["-u"] or not agent[2].endswith(".py"):
            return word
        way = [UNTIL_CALLED, ray_internals.RUNTIME_ENV_SERVICE]
        if name == ray_internals.DASHBOARD_AGENT:
            try:
                way = [UNTIL_RUNG, self._hang_bell(agent), ",".join(ray_internals.AGENT_SERVICES)]
            except OSError:  # a file system without FIFOs: the agent begins with its node, as Ray has it
                return word
        # As Ray does it, for the raylet to take apart.
        return name + subprocess.list2cmdline([*PROGRAM, *way, *agent])

    def _hang_bell(self, agent: Sequence[str]) -> str:
        path = os.path.join(option(agent, "--session-dir"), f"dashboard_agent_bell_{option(agent, '--node-id')}")
        os.mkfifo(path, 0o600)
        # For both directions: it neither waits for the other end nor loses what is written before that is there.
        self.bell = os.open(path, os.O_RDWR)
        return path


def _has(client: Any, key: bytes, namespace: bytes) -> bool:
    # The GCS may be busy, or end before the node does: nothing of that is for this thread to say.
    with contextlib.suppress(Exception):
        return client.internal_kv_get(key, namespace) is not None
    return False
