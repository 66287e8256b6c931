"""How fast the engine is: beside torch's own product and topk in chunks, and beside the device's own product."""

import functools
import time

import numpy as np
import torch

from raysm.features.similarity.cluster.engines.protocol import Best
from tests.gpu.exactness import engine_of
from tests.gpu.figures import Figure
from tests.support.dense_rows import centred, tiles

K = 10

LEAST_RATIO = 3.0
"""Times as fast as torch's float32 product and topk, which the issue asks for."""

LEAST_SHARE = 0.6
"""Of the device's own product, by the useful operations: half the matrix."""


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(device, run, times=3):
    """Return the least time of ``run``: what else goes on can only add to it."""
    took = []
    for _ in range(times):
        synchronize(device)
        begin = time.perf_counter()
        run()
        synchronize(device)
        took.append(time.perf_counter() - begin)
    return min(took)


def product_rate(device, dtype, size):
    """Return the operations per second of one square product, a multiplication and an addition being two."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=device, dtype=dtype)
    torch.mm(left, right, out=out)
    repeat = 10 if device.type == "cuda" else 1

    def run():
        for _ in range(repeat):
            torch.mm(left, right, out=out)

    return repeat * 2 * size**3 / seconds(device, run)


def torch_topk(rows, dtype, chunk):
    """Find the neighbors as a user of torch would: unit rows, a product and topk, a chunk of rows at a time."""
    unit = torch.nn.functional.normalize(rows).to(dtype)
    numbers = torch.arange(len(rows), device=rows.device)
    best = []
    for start in range(0, len(rows), chunk):
        near = unit[start : start + chunk] @ unit.T
        # No row is its own neighbor.
        near[numbers[: len(near)], numbers[start : start + chunk]] = -torch.inf
        best.append(torch.topk(near, K, dim=1))
    return best


def peer_seconds(device, rows):
    """Return how long torch's own way takes, by its precision; the rows lie on the device before."""
    there = torch.from_numpy(rows).to(device)
    # Scores of a GiB at a time: fewer would leave the device idle between chunks.
    chunk = max(1, (1 << 30) // (4 * len(rows))) if device.type == "cuda" else 256
    return {
        name: seconds(
            device, functools.partial(torch_topk, there, getattr(torch, name), chunk), times=2
        )
        for name in ("float32", "float16")
    }


def measure(device, shape, findings):
    size = 8192 if device.type == "cuda" else 256
    rates = {
        name: product_rate(device, getattr(torch, name), size) for name in ("float16", "bfloat16")
    }
    rows = np.random.default_rng(2).standard_normal(shape, dtype=np.float32)
    peers = peer_seconds(device, rows)
    (tile,) = tiles(rows)
    engine = engine_of(device, shape[1])
    prepared = engine.prepare(tile, centred(rows[: 1 << 16]))

    def run():
        best = Best.empty(tile.norms, K)
        engine.topk(prepared, prepared, best, best, same=True)

    begin = time.perf_counter()
    run()
    cold_s = time.perf_counter() - begin
    warm_s = seconds(device, run)
    useful = shape[0] * (shape[0] - 1) * shape[1]
    what, on_gpu = f"{shape[0]:,} x {shape[1]} top {K}", device.type == "cuda"
    findings.figures += [
        Figure(name="float16 product", value=rates["float16"] / 1e12, unit="Tops/s"),
        Figure(name="bfloat16 product", value=rates["bfloat16"] / 1e12, unit="Tops/s"),
        Figure(name=f"{what}, rows from the host", value=cold_s, unit="s"),
        Figure(name=f"{what}, rows on the device", value=warm_s, unit="s"),
        Figure(name=f"{what}, torch, float32", value=peers["float32"], unit="s"),
        Figure(name=f"{what}, torch, float16, inexact", value=peers["float16"], unit="s"),
        # Of a CPU the figures say nothing: its float16 products are emulated.
        Figure(
            name="times as fast as torch, float32",
            value=peers["float32"] / warm_s,
            least=LEAST_RATIO if on_gpu else None,
        ),
        Figure(name="times as fast as torch, float16", value=peers["float16"] / warm_s),
        Figure(
            name="share of the bfloat16 product's rate",
            value=useful / warm_s / rates["bfloat16"],
            least=LEAST_SHARE if on_gpu else None,
        ),
    ]
