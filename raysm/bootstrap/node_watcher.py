"""Which Ray nodes are registered with the GCS, a fifth of a second after they are.

``ray status`` takes seconds; ``ray.init`` registers a driver. So a child process (this module as a program) asks the
GCS itself every 50 ms and writes one JSON line for each change: ``{host: {"id": node id, "address": IP}}`` of the
nodes that are alive. The bootstrap's side, ``NodeWatcher``, starts it when it wants to know and ends it when it does.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm.bootstrap import ray_internals
from raysm.bootstrap.children import Child, Children
from raysm.bootstrap.lifecycle import Failed, Node, NodesChanged
from raysm.contract.names import LABEL_HOST
from raysm.errors import MissingDependency

__all__ = ["NodeWatcher", "await_first", "main", "watch"]

POLL_S = 0.05
FIRST_POLL_S = 0.1
"""A thousand nodes may wait for the first one."""
RESTART_S = 0.2
CALL_TIMEOUT_S = 5
UNUSABLE = "?"
"""The key, no host's name, of why the installed Ray cannot be asked at all."""
MAX_ANSWER = 2**24
"""Bytes of one line: 1,000 nodes take 100 KB."""


class NodeWatcher:
    """Watches the registration of nodes, through a child process, while it is open."""

    def __init__(self, children: Children, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Prepare to run ``command`` with the environment of a Ray process."""
        self._children, self._command, self._env = children, command, dict(env)
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, report: Callable[[NodesChanged | Failed], None]) -> None:
        """Begin; ``report`` is called whenever the nodes change, or if this Ray cannot be asked. Twice is once."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(report))

    def stop(self) -> None:
        """End the child process."""
        if self._task:
            self._task.cancel()
        if self._child:
            self._child.signal_group(signal.SIGKILL)
        self._child = self._task = None

    async def _run(self, report: Callable[[NodesChanged | Failed], None]) -> None:
        while True:
            # What the child says may be torn, and it may not even start: it is asked again, whatever happened.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                await self._ask(report)
            # The GCS may be too young to answer, or too busy: the caller's deadline ends this.
            await asyncio.sleep(RESTART_S)

    async def _ask(self, report: Callable[[NodesChanged | Failed], None]) -> None:
        self._child = child = self._children.start(
            self._command, self._env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        reader = asyncio.StreamReader(limit=MAX_ANSWER)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
        try:
            # A line without its end is what a child was killed in the middle of.
            while (line := await reader.readline()).endswith(b"\n"):
                report(_read(json.loads(line)))
        finally:
            transport.close()
            child.signal(signal.SIGKILL)  # one that wrote nonsense lives yet


def _read(answer: dict[str, Any]) -> NodesChanged | Failed:
    if UNUSABLE in answer:
        return Failed(MissingDependency(str(answer[UNUSABLE])))
    return NodesChanged({host: Node(node["id"], node["address"]) for host, node in answer.items()})


def watch(list_nodes: Callable[[], Mapping[str, Any]], write: Callable[[str], None], poll_s: float = POLL_S) -> None:
    """Write a line for each change of what ``list_nodes`` returns, until it or ``write`` raises."""
    last = None
    while True:
        nodes = list_nodes()
        if nodes != last:
            write(json.dumps(nodes) + "\n")
            last = nodes
        time.sleep(poll_s)


def _connect(address: str) -> Any:
    client_class = ray_internals.GCS_CLIENT.find()
    ray_internals.ALL_NODES.find()
    while True:
        try:
            return client_class(address=address)
        except RuntimeError:  # it listens, but does not answer yet; the parent's deadline ends this
            time.sleep(POLL_S)


def _list_nodes(client: Any) -> Mapping[str, Any]:
    nodes = {}
    for node_id, info in client.get_all_node_info(timeout=CALL_TIMEOUT_S).items():
        alive = info.state == ray_internals.ALIVE
        host = info.labels.get(LABEL_HOST)
        if alive and host:
            nodes[host] = {"id": node_id.hex(), "address": info.node_manager_address}
    return nodes


def await_first(address: str, limit_s: float) -> None:
    """Return once a node is registered with the GCS at ``address``, after ``limit_s``, or if it cannot be asked."""
    until = time.monotonic() + limit_s
    with contextlib.suppress(Exception):  # whoever waits asks for more next, and says then what is wrong
        client = ray_internals.GCS_CLIENT.find()(address=address)
        while not client.get_all_node_info(timeout=CALL_TIMEOUT_S) and time.monotonic() < until:
            time.sleep(FIRST_POLL_S)


def main() -> None:
    """Watch the GCS at the address given as the first argument; see the module's docstring."""

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        client = _connect(sys.argv[1])
        watch(lambda: _list_nodes(client), write)
    except MissingDependency as error:
        # Said, not only exited with: who asks would start this again and again, until its deadline.
        write(json.dumps({UNUSABLE: str(error)}) + "\n")
        sys.exit(1)
    except OSError:
        sys.exit(1)


if __name__ == "__main__":
    main()
