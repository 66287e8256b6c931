"""Training by ``training.step`` beside the plain loop of torch: the same DDP of one process, bfloat16, step by step."""

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raysm.features.training.cluster.loop import session
from raysm.features.training.cluster.prepare import prepare, step
from tests.gpu.figures import Figure
from tests.gpu.speed import synchronize

EXAMPLES = Path(__file__).parents[2] / "examples"

LEAST_RATE = 0.97
"""Of the plain loop's steps per second."""

LEAST_ACCURACY = 0.97
"""Of the plain loop's, on digits that were not trained on."""

IN_TURN = 10
"""Steps of one loop before the other has its turn."""

MODELS = {
    "digits": dict(channels=1, size=8, patch=2, width=64, depth=4, heads=4, classes=10),
    "ViT-S of 224 x 224": dict(
        channels=3, size=224, patch=16, width=384, depth=12, heads=6, classes=100
    ),
}


def model_of(name, device):
    """Return a model of the examples, the same at every call."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from vision_transformer import vision_transformer
    finally:
        sys.path.remove(str(EXAMPLES))
    torch.manual_seed(0)
    return vision_transformer(**MODELS[name]).to(device)


def digits():
    images = np.loadtxt(
        EXAMPLES / "data" / "digits.csv.gz", delimiter=",", skiprows=1, dtype=np.float32
    )
    labels = np.loadtxt(EXAMPLES / "data" / "digits-labels.csv.gz", skiprows=1, dtype=np.int64)
    return torch.from_numpy(images / 16).reshape(-1, 1, 8, 8), torch.from_numpy(labels)


def plain_loop(model, optimizer, device):
    """Return a function that trains one step as a user of torch writes it."""

    def plain_step(batch):
        images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # Read, as ``training.step`` returns it: that waits for the device.
        return loss.item()

    return plain_step


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def measure(device, findings, steps):
    """Train the digits, then measure both models; ``steps`` of each loop."""
    # No port: nothing else on the machine can be in its way.
    store = dist.HashStore()
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", store=store, rank=0, world_size=1
    )
    try:
        for name in MODELS:
            if device.type == "cpu" and name != "digits":
                findings.left_out.append(f"training of {name}: too slow on a CPU")
                continue
            _measure(name, device, findings, steps)
    finally:
        dist.destroy_process_group()


def _measure(name, device, findings, steps):
    plain = DistributedDataParallel(
        model_of(name, device),
        device_ids=[torch.cuda.current_device()] if device.type == "cuda" else None,
    )
    plain_step = plain_loop(plain, optimizer_of(plain), device)
    model = model_of(name, device)
    # With the process group that is there: so this one is wrapped in DDP, too.
    session.begin(device=device, precision="bf16")
    try:
        model, _ = prepare(model, optimizer_of(model), loss=nn.functional.cross_entropy)
        took, losses = in_turn(
            {"plain": plain_step, "raysm": step}, _batches(name, device), device, steps
        )
        ratio = statistics.median(took["plain"]) / statistics.median(took["raysm"])
        goal = LEAST_RATE if device.type == "cuda" else None
        findings.figures.append(
            Figure(name=f"{name}: steps/s of training.step / plain loop", value=ratio, least=goal)
        )
        # The same weights, batches and arithmetic: the curves lie on each other.
        worst = max(abs(a - b) for a, b in zip(losses["plain"], losses["raysm"], strict=True))
        findings.compare(f"{name}, losses", f"they differ by up to {worst}" if worst > 0.05 else "")
        if name == "digits" and steps >= 100:
            ratio = _accuracy(model, device) / _accuracy(plain, device)
            findings.figures.append(
                Figure(name="digits: accuracy / plain loop", value=ratio, least=LEAST_ACCURACY)
            )
    finally:
        session.end()


def _accuracy(model, device):
    images, labels = digits()
    with torch.no_grad():
        return float(
            (model(images[1500:].to(device)).argmax(1).cpu() == labels[1500:]).float().mean()
        )


def _batches(name, device):
    """Yield batches without an end: of the digits, or of noise that lies on the device already."""
    generator = torch.Generator().manual_seed(0)
    if name == "digits":
        images, labels = digits()
        while True:
            some = torch.randint(0, 1500, (128,), generator=generator)
            yield images[some], labels[some]
    shape = MODELS[name]
    images = torch.randn(
        64, shape["channels"], shape["size"], shape["size"], generator=generator
    ).to(device)
    labels = torch.randint(0, shape["classes"], (64,), generator=generator).to(device)
    while True:
        yield images, labels


def in_turn(loops, batches, device, steps):
    """Return seconds and losses of each loop's steps, the loops in turn over the same batches."""
    took, losses = {name: [] for name in loops}, {name: [] for name in loops}
    for begin in range(0, steps, IN_TURN):
        some = [next(batches) for _ in range(min(IN_TURN, steps - begin))]
        for name, one in loops.items():
            for batch in some:
                synchronize(device)
                at = time.perf_counter()
                losses[name].append(one(batch))
                synchronize(device)
                took[name].append(time.perf_counter() - at)
    # The first steps choose algorithms and make room.
    return {name: some[IN_TURN:] or some for name, some in took.items()}, losses
