"""Whether rows travel to the device while it computes: by torch's profiler, as a share of the copies' time."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from raysm.workloads.similarity.engines import Best
from tests.gpu.exactness import engine_of
from tests.gpu.figures import Figure
from tests.support.dense_rows import centred, tiles

__all__ = ["covered", "measure", "spans_of"]


def measure(device, shape, findings):
    """Compare rows that are not on the device yet, and look at what it did when."""
    rows = np.random.default_rng(3).standard_normal(shape, dtype=np.float32)
    (tile,) = tiles(rows)
    frame, engine = centred(rows[: 1 << 16]), engine_of(device, shape[1])
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        prepared, best = engine.prepare(tile, frame), Best.empty(tile.norms, 10)
        engine.topk(prepared, prepared, best, best, same=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        copies, kernels = spans_of(json.loads(path.read_text())["traceEvents"])
    if not copies:
        findings.left_out.append(f"overlap of copies and products: the profiler saw no copies to {device.type}")
        return
    total = sum(stop - start for start, stop in copies)
    findings.figures += [
        Figure(name="copies to the device", value=total / 1e6, unit="s"),
        Figure(name="share of their time in which it computes, too", value=covered(copies, kernels) / total),
    ]


def spans_of(events):
    """Return (start, stop) in microseconds of the copies to the device, and of the kernels, of a trace of kineto's."""
    spans = {"gpu_memcpy": [], "kernel": []}
    for event in events:
        category = event.get("cat")
        if category in spans and (category == "kernel" or "HtoD" in event["name"]):
            spans[category].append((event["ts"], event["ts"] + event["dur"]))
    return spans["gpu_memcpy"], spans["kernel"]


def covered(spans, others):
    """Return how much of the first spans' time lies in any of the others, in their unit."""
    merged = []
    for start, stop in sorted(others):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return sum(max(0, min(stop, b) - max(start, a)) for start, stop in spans for a, b in merged)
