"""How busy the instances are, as metrics, from the JSON of Ray's list of its nodes."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from raysm.contract.events import Metric
from raysm.contract.names import LABEL_HOST

__all__ = ["NODES", "NODE_COUNT", "samples_of"]

NODES = "nodes?view=summary"
"""The path at Ray's dashboard."""

NODE_COUNT = "nodes"


def samples_of(answer: Mapping[str, Any], time_s: float) -> list[Metric]:
    """Return the metrics of every node that is alive, and the number of these nodes.

    Args:
        answer: Ray's answer to ``NODES``.
        time_s: When it was asked, in seconds since the epoch.
    """
    nodes = [node for node in answer["data"]["summary"] if node.get("raylet", {}).get("state") == "ALIVE"]
    named = {_host(node): node for node in nodes}
    samples = [
        Metric(name=name, value=value, host=host, time_s=time_s)
        for host, node in named.items()
        for name, value in _usage(node)
    ]
    return [*samples, Metric(name=NODE_COUNT, value=float(len(nodes)), time_s=time_s)]


def _host(node: Mapping[str, Any]) -> str:
    """Return the instance's name from its label: instances on one machine share its host name."""
    labels = node["raylet"].get("labels") or {}
    return str(labels.get(LABEL_HOST) or node.get("hostname") or node["raylet"].get("nodeId", "")[:8])


def _usage(node: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    # psutil's first measurement of the load is always 0.
    if "cpu" in node and (node["cpu"] or _is_measured(node, "network", "networkSpeed")):
        yield "cpu_percent", float(node["cpu"])
    if node.get("mem"):
        total, _, percent, used = node["mem"][:4]
        yield "memory_percent", float(percent)
        yield "memory_bytes", float(used)
    gpus = [gpu for gpu in node.get("gpus") or () if gpu.get("utilizationGpu") is not None]
    if gpus:
        yield "gpu_percent", sum(gpu["utilizationGpu"] for gpu in gpus) / len(gpus)
        # The fullest GPU: a mean would hide one that is about to run out of memory.
        yield "gpu_memory_percent", 100.0 * max(gpu["memoryUsed"] / max(1, gpu["memoryTotal"]) for gpu in gpus)
    if _is_measured(node, "network", "networkSpeed"):
        sent_bytes, received = node["networkSpeed"][:2]
        yield "network_received_bytes_per_s", float(received)
        yield "network_sent_bytes_per_s", float(sent_bytes)
    if _is_measured(node, "diskIo", "diskIoSpeed"):
        read, written = node["diskIoSpeed"][:2]
        yield "disk_read_bytes_per_s", float(read)
        yield "disk_written_bytes_per_s", float(written)
    yield from _store(node["raylet"])


def _is_measured(node: Mapping[str, Any], total: str, speed: str) -> bool:
    """Return whether a node's speed was measured.

    In the first half minute Ray divides all bytes since the machine was booted by the seconds since 1970:
    https://github.com/ray-project/ray/blob/ray-2.60.0/python/ray/dashboard/modules/reporter/reporter_agent.py
    """
    speeds, totals, now_s = node.get(speed), node.get(total), node.get("now")
    if not speeds or not totals or not now_s:
        return bool(speeds)
    made_up = all(math.isclose(each, of_all / now_s) for each, of_all in zip(speeds, totals, strict=False))
    return not made_up or not any(totals)


def _store(raylet: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    if raylet.get("objectStoreUsedMemory") is not None:
        yield "object_store_bytes", float(raylet["objectStoreUsedMemory"])
