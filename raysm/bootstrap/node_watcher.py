"""Watch which Ray nodes are registered with the GCS, with a delay of at most 0.2 s.

``ray status`` takes seconds, and ``ray.init`` registers a driver. Therefore the process that started the head's Ray
node, and has imported Ray already, asks the GCS every 50 ms while a client is connected to its socket. It sends one
JSON line for each change: ``{host: {"id": node id, "address": IP}}`` of the nodes that are alive. ``NodeWatcher`` is
the client in the bootstrap.
"""

import asyncio
import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from raysm.bootstrap import ray_internals
from raysm.bootstrap.lifecycle import Failed, Node, NodesChanged
from raysm.contract.connections import has_own_listener
from raysm.contract.names import LABEL_HOST
from raysm.errors import MissingDependency

POLL_S = 0.05
FIRST_POLL_S = 0.1
"""A thousand nodes may wait for the first one."""
RETRY_S = 0.2
CALL_TIMEOUT_S = 5
UNUSABLE = "?"
"""The key, no host's name, of why the installed Ray cannot be asked at all."""
MAX_ANSWER = 2**24
"""Bytes of one line: 1,000 nodes take 100 KB."""


def nodes_socket(ray_temp_dir: Path, gcs_port: int) -> Path:
    """Return where the process that has started the head's node tells of all nodes.

    Args:
        ray_temp_dir: Ray's, which instances on one machine may have in common.
        gcs_port: The head's, which no two heads of a machine have in common.
    """
    return ray_temp_dir / f"raysm-nodes-{gcs_port}"


class NodeWatcher:
    """Watches the registration of nodes, through a socket, while it is open."""

    def __init__(self, path: Path) -> None:
        """Prepare to connect to the socket at ``path``, see ``nodes_socket``."""
        self._path = path
        self._task: asyncio.Task[None] | None = None

    def start(self, report: Callable[[NodesChanged | Failed], None]) -> None:
        """Begin; ``report`` is called whenever the nodes change, or if this Ray cannot be asked. Twice is once."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(report))

    def stop(self) -> None:
        """Disconnect; the GCS is not asked any more."""
        if self._task:
            self._task.cancel()
        self._task = None

    async def _run(self, report: Callable[[NodesChanged | Failed], None]) -> None:
        while True:
            # A line may be incomplete, or the server may not listen yet: connect again in any case.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                await self._ask(report)
            # The GCS may be too young to answer, or too busy: the caller's deadline ends this.
            await asyncio.sleep(RETRY_S)

    async def _ask(self, report: Callable[[NodesChanged | Failed], None]) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_ANSWER)
        try:
            # A line without its end is what the other side ended in the middle of.
            while (line := await reader.readline()).endswith(b"\n"):
                report(_read(json.loads(line)))
        finally:
            writer.close()


def _read(answer: dict[str, Any]) -> NodesChanged | Failed:
    if UNUSABLE in answer:
        return Failed(MissingDependency(str(answer[UNUSABLE])))
    return NodesChanged({host: Node(node["id"], node["address"]) for host, node in answer.items()})


def watch(list_nodes: Callable[[], Mapping[str, Any]], write: Callable[[str], None], pause: Callable[[], None]) -> None:
    """Write a line for each change of what ``list_nodes`` returns, until one of the three raises."""
    last = None
    while True:
        nodes = list_nodes()
        if nodes != last:
            write(json.dumps(nodes) + "\n")
            last = nodes
        pause()


def tell_nodes(path: Path, address: str) -> None:
    """Tell all that connect, one after the other, of the nodes of a cluster; never return.

    Args:
        path: Of the socket, see ``nodes_socket``.
        address: The GCS's ``IP:port``, which may answer later.
    """
    # If one has left, or the GCS does not answer yet, the caller asks again until its own deadline.
    answer_callers(path, lambda caller: _tell(caller, address))


def answer_callers(path: Path, answer: Callable[[socket.socket], object]) -> None:
    """Listen at a Unix socket and answer its callers in turn; an answer that fails closes the connection."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        while True:
            caller, _ = server.accept()
            with caller, contextlib.suppress(Exception):
                answer(caller)


def _tell(caller: socket.socket, address: str) -> None:
    def write(text: str) -> None:
        caller.sendall(text.encode())

    def pause() -> None:
        # It says nothing: what can be read is that it has left.
        if select.select([caller], [], [], POLL_S)[0]:
            raise ConnectionAbortedError("the client has disconnected")

    host, _, port = address.rpartition(":")
    # Ray's client sends the token to whatever listens there.
    if not has_own_listener(host, int(port)):
        raise ConnectionRefusedError(f"the GCS does not listen at {address} yet")
    try:
        client_class = ray_internals.GCS_CLIENT.find()
        ray_internals.ALL_NODES.find()
        client = client_class(address=address)
        watch(lambda: _list_nodes(client), write, pause)
    except MissingDependency as error:
        # Said, not only left: who asks would come again and again, until its deadline.
        write(json.dumps({UNUSABLE: str(error)}) + "\n")


def _list_nodes(client: Any) -> Mapping[str, Any]:
    nodes = {}
    for node_id, info in client.get_all_node_info(timeout=CALL_TIMEOUT_S).items():
        alive = info.state == ray_internals.ALIVE
        host = info.labels.get(LABEL_HOST)
        if alive and host:
            nodes[host] = {"id": node_id.hex(), "address": info.node_manager_address}
    return nodes


def await_first(address: str, limit_s: float) -> None:
    """Return once a node is registered with the GCS at ``address``, after ``limit_s``, or if it cannot be asked.

    Raises:
        ConnectionError: On this machine, no process of this user listens there.
    """
    until = time.monotonic() + limit_s
    host, _, port = address.rpartition(":")
    # A worker is told the address once the GCS listens there: on this machine, as a process of this user.
    if not has_own_listener(host, int(port)):
        raise ConnectionRefusedError(f"the GCS no longer listens at {address}")
    with contextlib.suppress(Exception):  # the next read reports the error
        client = ray_internals.GCS_CLIENT.find()(address=address)
        while not client.get_all_node_info(timeout=CALL_TIMEOUT_S) and time.monotonic() < until:
            time.sleep(FIRST_POLL_S)
