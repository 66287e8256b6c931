"""Ask Ray's GCS which nodes are registered, and which requests no instance can ever fulfil.

``ray status`` takes seconds, and ``ray.init`` registers a driver. So the process that started the head's Ray node
(``ray_start``), which has imported Ray already, asks the GCS and serves two Unix sockets; the head's bootstrap is their
client.

- Nodes: one JSON line for each change, ``{host: {"id": node id, "address": IP}}`` of the nodes that are alive.
- Unmet requests: Ray waits for an autoscaler to bring a larger node, but the instances of a job are fixed. A task,
  actor or placement group that fits nowhere would wait until the job's time limit; the head names it and ends the job.
"""

import asyncio
import collections
import contextlib
import functools
import json
import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysm.bootstrap import ray_internals
from raysm.contract.connections import has_own_listener
from raysm.contract.names import LABEL_HOST
from raysm.errors import InvalidRequest, MissingDependency

if TYPE_CHECKING:
    from raysm.bootstrap.lifecycle import Failed, NodesChanged

POLL_S = 0.05
FIRST_POLL_S = 0.1
"""Longer than ``POLL_S``, because a thousand nodes may poll for the head's; the first pauses are shorter."""
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
            # The server may not listen yet, or may close the connection within a line: always connect again.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                await self._ask(report)
            # The GCS may not have started yet, or may be busy. The caller's deadline ends this loop.
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
    from raysm.bootstrap.lifecycle import Failed, Node, NodesChanged

    if UNUSABLE in answer:
        return Failed(MissingDependency(str(answer[UNUSABLE])))
    return NodesChanged({host: Node(node["id"], node["address"]) for host, node in answer.items()})


def tell_nodes(path: Path, address: str) -> None:
    """Serve the nodes of the cluster at ``address`` on the socket ``path``; never return."""
    # If the GCS does not answer yet, the client connects again.
    answer_callers(path, lambda caller: _send_nodes(caller, address))


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
    """Return the node of each host: the latest, because the GCS takes a killed raylet for alive for another 15 s."""
    nodes = {}
    for node_id, info in sorted(infos.items(), key=lambda item: item[1].start_time_ms):
        host = info.labels.get(LABEL_HOST)
        if info.state == ray_internals.ALIVE and host:
            nodes[host] = {"id": node_id.hex(), "address": info.node_manager_address}
    return nodes


def await_first(address: str, limit_s: float) -> None:
    """Return when a node is registered at ``address``, after ``limit_s``, or if the GCS cannot be asked."""
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


Bundle = Mapping[str, float]
"""Resources by Ray's name, ``{"CPU": 64.0}``."""
NAMED_AFTER_S = 60.0
FIRST_S, LOOK_S = 5.0, 5.0
OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus"}
OF_A_GROUP = re.compile("_group_(?:[0-9]+_)?[0-9a-f]{16,}$")
"""The end of the name of a resource inside a placement group, which exists only after the group is placed."""


def find_unmet(nodes: Sequence[Bundle], requests: Iterable[Sequence[Bundle]]) -> dict[str, str]:
    """Return the requests that can never be placed, each with the resources that the cluster has, as text.

    A task or an actor is one bundle of resources, a placement group several.
    """
    unmet = {}
    for bundles in requests:
        names = sorted({name for bundle in bundles for name in bundle})
        if not nodes or any(OF_A_GROUP.search(name) for name in names):
            continue
        fits = all(any(_covers(node, bundle) for node in nodes) for bundle in bundles)
        if not fits or not _covers(_sum(nodes), _sum(bundles)):
            request = ", ".join(_text(bundle) for bundle in bundles[:1])
            if len(bundles) > 1:
                request = f"a placement group of {len(bundles)} bundles, {_text(_sum(bundles))} in all"
            have = collections.Counter(_text({name: node.get(name, 0.0) for name in names}) for node in nodes)
            unmet[request] = ", ".join(f"{count} x ({text})" for text, count in sorted(have.items()))
    return unmet


def _covers(have: Bundle, want: Bundle) -> bool:
    return all(have.get(name, 0.0) >= amount for name, amount in want.items())


def _sum(bundles: Iterable[Bundle]) -> Bundle:
    total: collections.Counter[str] = collections.Counter()
    for bundle in bundles:
        total.update(bundle)
    return total


def _text(bundle: Bundle) -> str:
    return ", ".join(f"{OPTIONS.get(name, name)}={amount:g}" for name, amount in sorted(bundle.items()))


class UnmetRequests:
    """Waiting times of unmet requests; decides when to log one and when to fail the job."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[str, float] = {}
        self._named: set[str] = set()

    def take(self, unmet: Mapping[str, str], now_s: float) -> list[str]:
        self._since = {request: self._since.get(request, now_s) for request in unmet}
        self._named &= unmet.keys()
        lines = []
        for request, since_s in self._since.items():
            waited_s = now_s - since_s
            what = f"no instance can ever run the Ray request {request}; the instances have {unmet[request]}"
            if waited_s >= self._limit_s:
                raise InvalidRequest(
                    f"{what}. It has been waiting for {waited_s:.0f} s: ask for less, or for larger or more instances"
                )
            if waited_s >= NAMED_AFTER_S and request not in self._named:
                self._named.add(request)
                left_s = self._limit_s - waited_s
                fails = "" if left_s == float("inf") else f". The job fails in {left_s:.0f} s if it still waits then"
                lines.append(f"warning: {what}{fails}")
        return lines


async def watch_unmet(path: Path, requests: UnmetRequests, remark: Callable[[str], None]) -> None:
    await asyncio.sleep(FIRST_S)
    while True:
        unmet = None
        # Without a supported Ray there is no socket, and a busy GCS may not answer in time.
        with contextlib.suppress(OSError, ValueError):
            unmet = await _ask(path)
        if unmet is not None:
            for line in requests.take(unmet, time.monotonic()):
                remark(line)
        await asyncio.sleep(LOOK_S)


async def _ask(path: Path) -> dict[str, str]:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
    try:
        answer: dict[str, str] = json.loads(await reader.read(MAX_ANSWER))
    finally:
        writer.close()
    return answer


def unmet_socket(ray_temp_dir: Path, gcs_port: int) -> Path:
    return ray_temp_dir / f"raysm-unmet-{gcs_port}"


def tell_unmet(path: Path, address: str) -> None:
    """Serve the unmet requests of the cluster at ``address`` on the socket ``path``; never return."""
    # If the GCS does not answer now, the client's next check asks again.
    answer_callers(path, lambda caller: caller.sendall(json.dumps(_read_unmet(address)).encode()))


@functools.cache
def _client(address: str) -> Any:
    return ray_internals.GCS_CLIENT.find()(address=address)


def _read_unmet(address: str) -> dict[str, str]:
    read_state = ray_internals.RESOURCE_STATE.find()
    if read_state is None:
        return {}
    state = read_state(_client(address))
    single = [[each.request.resources_bundle] for each in state.pending_resource_requests]
    groups = [
        [bundle.resources_bundle for bundle in bundles.resource_requests]
        for group in state.pending_gang_resource_requests
        for bundles in group.bundle_selectors[:1]
    ]
    return find_unmet([node.total_resources for node in state.node_states], [*single, *groups])
