"""Name Ray requests that no instance can ever meet, and fail the job when one waits too long.

Ray waits for an autoscaler to bring a larger node. The instances of a job are fixed, so such a task, actor or placement
group would wait until the job's time limit. The process that has started the head's node asks the GCS for pending
requests; the head asks that process through a Unix socket.
"""

import asyncio
import collections
import contextlib
import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raysm.bootstrap import ray_internals
from raysm.bootstrap.node_watcher import answer_callers
from raysm.errors import InvalidRequest

Bundle = Mapping[str, float]
"""Resources by Ray's name, ``{"CPU": 64.0}``."""

NAMED_AFTER_S = 60.0
FIRST_S, POLL_S = 5.0, 5.0
"""Seconds until the first look, which most short jobs never see, and between looks."""
MAX_ANSWER = 2**20
OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus"}
OF_A_GROUP = re.compile("_group_(?:[0-9]+_)?[0-9a-f]{16,}$")
"""A resource inside of a placement group, which exists once the group is placed."""


def find_unmet(nodes: Sequence[Bundle], requests: Iterable[Sequence[Bundle]]) -> dict[str, str]:
    """Return the requests that can never be placed, and what the cluster has of what each asks for, as text.

    Args:
        nodes: The total resources of each node.
        requests: Tasks and actors as one bundle each, placement groups as several.
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
    """How long each unmet request has been waiting, and what follows from it."""

    def __init__(self, limit_s: float) -> None:
        """Fail the job when a request has been unmet for ``limit_s`` seconds; infinity never does."""
        self._limit_s = limit_s
        self._since: dict[str, float] = {}
        self._named: set[str] = set()

    def take(self, unmet: Mapping[str, str], now_s: float) -> list[str]:
        """Take the requests that are unmet now; return a line for each that is to be named.

        Raises:
            InvalidRequest: One has been unmet for too long.
        """
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
                lines.append(f"warning: {what}{self._deadline(since_s - now_s + self._limit_s)}")
        return lines

    def _deadline(self, left_s: float) -> str:
        return "" if left_s == float("inf") else f". The job fails in {left_s:.0f} s if it still waits then"


async def watch_unmet(path: Path, requests: UnmetRequests, remark: Callable[[str], None]) -> None:
    """Look at the unmet requests until one has waited too long.

    Raises:
        InvalidRequest: One has been unmet for too long.
    """
    await asyncio.sleep(FIRST_S)
    while True:
        unmet = None
        # The socket is not there with a Ray that cannot be asked, and a busy GCS may not answer in time.
        with contextlib.suppress(OSError, ValueError):
            unmet = await _ask(path)
        if unmet is not None:
            for line in requests.take(unmet, time.monotonic()):
                remark(line)
        await asyncio.sleep(POLL_S)


async def _ask(path: Path) -> dict[str, str]:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
    try:
        answer: dict[str, str] = json.loads(await reader.read(MAX_ANSWER))
    finally:
        writer.close()
    return answer


def unmet_socket(ray_temp_dir: Path, gcs_port: int) -> Path:
    """Return where the process that has started the head's node tells of unmet requests."""
    return ray_temp_dir / f"raysm-unmet-{gcs_port}"


def tell_unmet(path: Path, address: str) -> None:
    """Answer all that connect with the unmet requests of a cluster; never return.

    Args:
        path: Of the socket, see ``unmet_socket``.
        address: The GCS's ``IP:port``.
    """
    # If the GCS does not answer now, the next look asks again.
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
