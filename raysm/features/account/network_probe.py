"""The script of ``raysm doctor --run --network``: measures the network between the instances.

torch.distributed moves the bytes, as in a training: by NCCL if all instances have GPUs, else gloo.
"""

import datetime
import json
import math
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULT = "network.json"
"""The file of the result; ``measure`` describes it."""
MIB = 2**20
TIMEOUT_S = 120.0
"""Seconds for one operation; after it the job fails."""
REPEATS = 5
PASSES = 3
"""Times that each pair is measured; the best one counts, because other work on an instance only
slows it."""
PASS_S = 0.2
MAX_ROUND_TRIPS = 50
FEW = 8
"""With more instances, several pairs are measured at once, each instance in one of them."""
STANDS_OUT = 0.5
"""A pair stands out if it has less than this share of the usual bandwidth."""


def rounds(hosts: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield all pairs of hosts, in lists of pairs that have no host in common."""
    circle: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        pairs_of_round = [
            (one, other) for one, other in pairs if one is not None and other is not None
        ]
        yield from [pairs_of_round] if len(hosts) > FEW else ([pair] for pair in pairs_of_round)
        circle = [circle[0], circle[-1], *circle[1:-1]]


def usual_bandwidth(bandwidths: Sequence[float]) -> float:
    """Return the median of the faster half, which a few slow instances do not change."""
    ordered = sorted(bandwidths, reverse=True)
    return statistics.median_high(ordered[: math.ceil(len(ordered) / 2)])


def verdict(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the slowest pair, and whether it stands out.

    Args:
        pairs: With ``instances``, their two names, and ``bytes_per_s``.
    """
    usual = usual_bandwidth([pair["bytes_per_s"] for pair in pairs])
    slow = [pair for pair in pairs if pair["bytes_per_s"] < STANDS_OUT * usual]
    slowest = min(pairs, key=lambda pair: pair["bytes_per_s"])
    text = f"the slowest pair is {' and '.join(slowest['instances'])} with {shown(slowest)}"
    if len(pairs) == 1:
        return f"{text}; it is the only one, so there is nothing to compare it with"
    share = slowest["bytes_per_s"] / usual
    text += f", {share:.0%} of the usual {usual / 1e9:.3g} GB/s"
    if not slow:
        return f"{text}: it does not stand out"
    text += ": it stands out"
    common = set.intersection(*(set(pair["instances"]) for pair in slow))
    if len(slow) > 1 and len(common) == 1:
        return f"{text}; all {len(slow)} slow pairs have {common.pop()} in common"
    return f"{text}, as do {len(slow) - 1} others" if len(slow) > 1 else text


def joined(
    hosts: Sequence[str], nodes: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, int], list[str]]:
    """Return the GPUs of each host that joined, and the hosts that did not.

    A job with ``min_instances`` starts without some.

    Args:
        hosts: All hosts of the job.
        nodes: The nodes as ``ray.nodes()`` returns them.
    """
    gpus = {
        node["Labels"].get("raysm.io/host"): int(node["Resources"].get("GPU", 0))
        for node in nodes
        if node["Alive"]
    }
    present = {host: gpus[host] for host in hosts if host in gpus}
    return present, [host for host in hosts if host not in gpus]


def why_gloo(gpus: Mapping[str, int]) -> str:
    """Return why NCCL cannot measure, by the GPUs of each instance; empty if it can."""
    without = [host for host, count in gpus.items() if not count]
    if len(without) == len(gpus):
        return "no instance has a GPU"
    return f"no GPU is on {', '.join(without)}" if without else ""


def shown(pair: Mapping[str, Any]) -> str:
    return f"{pair['bytes_per_s'] / 1e9:.3g} GB/s"


class Rank:
    """A process of the measurement, with one GPU or none."""

    def __init__(self, rank: int, gpu: bool) -> None:
        self._rank = rank
        self._device = "cuda:0" if gpu else "cpu"
        self._bytes = (64 if gpu else 4) * MIB

    def find_address(self) -> str:
        """Return an address of this instance with a free port, for the first rank."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def join(self, address: str, size: int) -> str:
        import torch
        import torch.distributed

        self._torch: Any = torch
        backend = "gloo" if self._device == "cpu" else "nccl"
        torch.distributed.init_process_group(
            backend,
            init_method=f"tcp://{address}",
            rank=self._rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=TIMEOUT_S),
        )
        self._tensor = torch.ones(self._bytes // 4, device=self._device)
        return backend

    def all_reduce(self) -> tuple[int, float]:
        """Return the bytes of an all-reduce of all ranks, and its seconds."""
        distributed = self._torch.distributed
        seconds = []
        for _ in range(REPEATS):
            # Not at the same tensor again and again: its numbers would overflow.
            self._tensor.fill_(1.0)
            distributed.barrier()
            begun_s = time.perf_counter()
            distributed.all_reduce(self._tensor)
            self._settle()
            seconds.append(time.perf_counter() - begun_s)
        return self._bytes, min(seconds)

    def exchange(self, peer: int, leads: bool) -> float:
        """Send a tensor to another rank and back; return the bytes per second of one direction."""
        # The first one also connects them, and a short one shows whether the pair is very slow.
        warm_up = self._tensor[: MIB // 16]
        self._round_trip(warm_up, peer, leads)
        seconds = self._round_trip(warm_up, peer, leads)
        count = self._torch.tensor([0.0], device=self._device)
        if leads:
            expected_s = seconds * len(self._tensor) / len(warm_up)
            count[0] = min(MAX_ROUND_TRIPS, math.ceil(PASS_S / expected_s))
            self._torch.distributed.send(count, peer)
        else:
            self._torch.distributed.recv(count, peer)
        times = [self._round_trip(self._tensor, peer, leads) for _ in range(int(count.item()))]
        return 2 * self._bytes / min(times)

    def _round_trip(self, tensor: Any, peer: int, leads: bool) -> float:
        distributed = self._torch.distributed
        first, second = (
            (distributed.send, distributed.recv) if leads else (distributed.recv, distributed.send)
        )
        begun_s = time.perf_counter()
        first(tensor, peer)
        second(tensor, peer)
        self._settle()
        return time.perf_counter() - begun_s

    def _settle(self) -> None:
        if self._device != "cpu":
            self._torch.cuda.synchronize()


def measure(hosts: Sequence[str], gpus: int) -> dict[str, Any]:
    """Return the bandwidths of all-reduce and of each pair of instances, in bytes per second.

    Args:
        hosts: The instances.
        gpus: The GPUs of each that take part; 0 measures with one process of each on its CPUs.
    """
    import ray

    per_host = max(1, gpus)
    actor = ray.remote(num_cpus=0, num_gpus=1 if gpus else 0)(Rank)
    ranks = [
        actor.options(label_selector={"raysm.io/host": host}).remote(
            number * per_host + local, gpus > 0
        )
        for number, host in enumerate(hosts)
        for local in range(per_host)
    ]
    address = ray.get(ranks[0].find_address.remote())
    backend = ray.get([rank.join.remote(address, len(ranks)) for rank in ranks])[0]
    reduced = ray.get([rank.all_reduce.remote() for rank in ranks])
    seconds = max(each for _, each in reduced)
    # What each link carries, by the formula of nccl-tests.
    carried = 2 * (len(ranks) - 1) / len(ranks) * reduced[0][0]
    best: dict[tuple[str, str], float] = {}
    for together in list(rounds(hosts)) * PASSES:
        running = [
            (
                pair,
                [
                    ranks[own].exchange.remote(peer, leads)
                    for local in range(per_host)
                    for own, peer, leads in _both(pair, hosts, per_host, local)
                ],
            )
            for pair in together
        ]
        for pair, answers in running:
            # Both ends of a connection measure the same bytes.
            total = sum(ray.get(answers)) / 2
            best[pair] = max(total, best.get(pair, 0.0))
    pairs = [{"instances": list(pair), "bytes_per_s": each} for pair, each in best.items()]
    return {
        "backend": backend,
        "gpus": gpus,
        "all_reduce_bytes_per_s": carried / seconds,
        "pairs": sorted(pairs, key=lambda pair: pair["bytes_per_s"]),
    }


def _both(
    pair: tuple[str, str], hosts: Sequence[str], per_host: int, local: int
) -> list[tuple[int, int, bool]]:
    """Return rank, peer, and whether it leads, for both ends of a connection."""
    one, other = (hosts.index(host) * per_host + local for host in pair)
    return [(one, other, True), (other, one, False)]


def main() -> None:
    """Measure, and leave the bandwidths as the job's result."""
    import ray

    try:
        import torch
    except ImportError:
        sys.exit("--network needs torch in the image: --requirement torch installs it")
    ray.init(log_to_driver=False)
    present, missing = joined(json.loads(os.environ["SM_HOSTS"]), ray.nodes())
    if len(present) < 2:
        sys.exit(f"there is no pair to measure: {', '.join(missing)} did not join")
    found = measure(list(present), min(present.values())) | {
        "why_gloo": why_gloo(present),
        "missing": missing,
        "torch": torch.__version__,
    }
    print(f"{len(found['pairs'])} pairs of {len(present)} instances were measured", flush=True)
    (Path(os.environ["SM_MODEL_DIR"]) / RESULT).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
