"""Ask Ray's GCS which nodes are registered, and which requests it has not placed.

``ray status`` takes seconds, and ``ray.init`` registers a driver. So the process that started the
head's Ray node (``ray_start``), which has imported Ray already, asks the GCS and serves two Unix
sockets; the head's bootstrap is their client.

- Nodes: one JSON line for each change, ``{host: {"id": node id, "address": IP}}`` of the nodes that
  are alive.
- Pending requests: Ray waits for an autoscaler to bring a larger node, but the instances of a job
  are fixed. A task, actor or placement group that fits nowhere would wait until the job's time
  limit; the head names it and ends the job. It also names requests that have waited for long for
  resources which others hold.
"""

import asyncio
import contextlib
import functools
import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysm.core.protocol.connections import has_own_listener
from raysm.core.protocol.names import LABEL_HOST
from raysm.errors import MissingDependency
from raysm.instance import ray_internals
from raysm.instance.pending_requests import Findings, Observe, Pending, Strategy, find_pending

if TYPE_CHECKING:
    from raysm.instance.lifecycle import Failed, NodesChanged

POLL_S = 0.05
FIRST_POLL_S = 0.1
"""Longer than ``POLL_S``, because a thousand nodes may poll for the head's; the first pauses are
shorter."""
RETRY_S = 0.2
CALL_TIMEOUT_S = 5
UNUSABLE = "?"
"""A key that is no host name: the reason why the installed Ray cannot be asked at all."""
MAX_ANSWER = 2**24
"""Maximum length of one line; 1,000 nodes take 100 KB."""


def nodes_socket(ray_temp_dir: Path, gcs_port: int) -> Path:
    return ray_temp_dir / f"raysm-nodes-{gcs_port}"


class NodeWatcher:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._task: asyncio.Task[None] | None = None

    def start(self, report: "Callable[[NodesChanged | Failed], None]") -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(report))

    def stop(self) -> None:
        if self._task:
            self._task.cancel()
        self._task = None

    async def _run(self, report: "Callable[[NodesChanged | Failed], None]") -> None:
        while True:
            # The server may not listen yet, or may close the connection within a line: always
            # connect again.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                await self._ask(report)
            # The GCS may not have started yet, or may be busy. The caller's deadline ends this
            # loop.
            await asyncio.sleep(RETRY_S)

    async def _ask(self, report: "Callable[[NodesChanged | Failed], None]") -> None:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_ANSWER)
        try:
            # An incomplete line means that the server has closed the connection.
            while (line := await reader.readline()).endswith(b"\n"):
                report(_read(json.loads(line)))
        finally:
            writer.close()


def _read(answer: dict[str, Any]) -> "NodesChanged | Failed":
    # Imported late: the process that answers would import all of them for nothing.
    from raysm.instance.lifecycle import Failed, Node, NodesChanged

    if UNUSABLE in answer:
        return Failed(MissingDependency(str(answer[UNUSABLE])))
    return NodesChanged({host: Node(node["id"], node["address"]) for host, node in answer.items()})


def tell_nodes(path: Path, address: str) -> None:
    """Serve the nodes of the cluster at ``address`` on the socket ``path``; never return."""
    # If the GCS does not answer yet, the client connects again.
    answer_callers(path, lambda caller: _send_nodes(caller, address))


def answer_callers(path: Path, answer: Callable[[socket.socket], object]) -> None:
    """Listen at a Unix socket and answer callers in turn; a failed answer closes the connection."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        while True:
            caller, _ = server.accept()
            with caller, contextlib.suppress(Exception):
                answer(caller)


def _send_nodes(caller: socket.socket, address: str) -> None:
    host, _, port = address.rpartition(":")
    # Checked, because Ray's client sends the token to any process that listens there.
    if not has_own_listener(host, int(port)):
        raise ConnectionRefusedError(f"the GCS does not listen at {address} yet")
    try:
        client = ray_internals.GCS_CLIENT.find()(address=address)
        ray_internals.ALL_NODES.find()
    except MissingDependency as error:
        # Without an answer, the client would connect again until its deadline.
        caller.sendall(json.dumps({UNUSABLE: str(error)}).encode() + b"\n")
        return
    last = None
    # The client sends nothing, so a readable socket means that it has disconnected.
    while not (last is not None and select.select([caller], [], [], POLL_S)[0]):
        nodes = latest_by_host(client.get_all_node_info(timeout=CALL_TIMEOUT_S))
        if nodes != last:
            caller.sendall(json.dumps(nodes).encode() + b"\n")
            last = nodes


def latest_by_host(infos: Mapping[Any, Any]) -> dict[str, dict[str, str]]:
    """Return the latest node of each host.

    The GCS takes a killed raylet for alive for another 15 s.
    """
    nodes = {}
    for node_id, info in sorted(infos.items(), key=lambda item: item[1].start_time_ms):
        host = info.labels.get(LABEL_HOST)
        if info.state == ray_internals.ALIVE and host:
            nodes[host] = {"id": node_id.hex(), "address": info.node_manager_address}
    return nodes


def await_first(address: str, limit_s: float) -> None:
    """Return when a node is registered at ``address``, after ``limit_s``, or if the GCS fails.

    The GCS fails if it cannot be asked.
    """
    until = time.monotonic() + limit_s
    host, _, port = address.rpartition(":")
    # A worker gets the address only when the GCS listens there.
    if not has_own_listener(host, int(port)):
        raise ConnectionRefusedError(f"the GCS no longer listens at {address}")
    with contextlib.suppress(Exception):  # the next read reports the error
        client = ray_internals.GCS_CLIENT.find()(address=address)
        pause_s = 0.02
        while not client.get_all_node_info(timeout=CALL_TIMEOUT_S) and time.monotonic() < until:
            time.sleep(pause_s)
            pause_s = min(FIRST_POLL_S, 1.5 * pause_s)


LOOK_S = 5.0


async def watch_pending(
    path: Path, observe: Observe, remark: Callable[[str], None], *, pause_s: float = LOOK_S
) -> None:
    while True:
        await asyncio.sleep(pause_s)
        findings = None
        # Without a supported Ray there is no socket, and a busy GCS may not answer in time.
        with contextlib.suppress(OSError, ValueError, TypeError):
            findings = await _ask(path)
        if findings is not None:
            for line in observe(findings, time.monotonic()):
                remark(line)


async def _ask(path: Path) -> Findings:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
    try:
        return Findings(**json.loads(await reader.read(MAX_ANSWER)))
    finally:
        writer.close()


def pending_socket(ray_temp_dir: Path, gcs_port: int) -> Path:
    return ray_temp_dir / f"raysm-pending-{gcs_port}"


def tell_pending(path: Path, address: str) -> None:
    """Serve pending requests of the cluster at ``address`` on the socket ``path``; never return."""
    # If the GCS does not answer now, the client's next check asks again.
    answer_callers(
        path, lambda caller: caller.sendall(json.dumps(asdict(_read_pending(address))).encode())
    )


@functools.cache
def _client(address: str) -> Any:
    return ray_internals.GCS_CLIENT.find()(address=address)


def _read_pending(address: str) -> Findings:
    read_state = ray_internals.RESOURCE_STATE.find()
    if read_state is None:
        return Findings()
    state = read_state(_client(address))
    single = [
        Pending(bundles=[each.request.resources_bundle], count=each.count)
        for each in state.pending_resource_requests
    ]
    groups = [
        Pending(
            bundles=[bundle.resources_bundle for bundle in bundles.resource_requests],
            strategy=_strategy_of(bundles.resource_requests),
        )
        for group in state.pending_gang_resource_requests
        for bundles in group.bundle_selectors[:1]
    ]
    totals = [node.total_resources for node in state.node_states]
    return find_pending(
        totals, [node.available_resources for node in state.node_states], [*single, *groups]
    )


def _strategy_of(bundles: Iterable[Any]) -> Strategy:
    # PACK and SPREAD have no constraint.
    constraints = [constraint for bundle in bundles for constraint in bundle.placement_constraints]
    if any(constraint.HasField("anti_affinity") for constraint in constraints):
        return "STRICT_SPREAD"
    if any(constraint.HasField("affinity") for constraint in constraints):
        return "STRICT_PACK"
    return "any"
