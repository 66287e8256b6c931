"""What one rank of an entry with several processes does: ``torchrun -m tests.gpu.ranks PART FOLDER …``.

Rank 0 leaves what was found in FOLDER/found.json. Without a GPU the ranks compute on CPUs, by gloo.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812
from torch import nn

from raysm import training
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel
from tests.support.parallel_modes import BATCH, Block, Transformer, data, sgd

EPOCHS = 3
BLOCK = 32 << 20
"""Bytes of a block of the model that is made in parts."""


def parallel_of(mode, world):
    """Return how the ranks share a model in a mode."""
    match mode:
        case "DDP":
            return Parallel()
        case "FSDP2":
            return Parallel(shard=world)
        case "hybrid shard":
            return Parallel(data=2, shard=world // 2)
        case "pipeline":
            return Parallel(pipeline=world, schedule="1f1b", microbatches=2 * world)
        case "tensor":
            return Parallel(tensor=world)
        case "data x pipeline x tensor":
            return Parallel(data=world // 4, pipeline=2, tensor=2, microbatches=4)
    raise ValueError(mode)


def prepared(parallel, **options):
    torch.manual_seed(0)
    model = Transformer(blocks=[Block(32, 8) for _ in range(8)], width=32)
    training.prepare(model, sgd(model), parallel, loss=F.cross_entropy, blocks="layers", **options)


def epoch(number, of=EPOCHS):
    """Train to the end of epoch ``of``, beginning with epoch ``number``; return the losses."""
    sessions.current().position.epoch = number
    batches = training.batches(data(), batch_size=BATCH, epochs=of, seed=3)
    return [float(training.step(batch)) for batch in batches]


def curve(folder, mode, precision="fp32", compiles="no"):
    """Train; return the first losses, and the steps of a second after them."""
    prepared(parallel_of(mode, world()), precision=precision, compile=compiles == "yes")
    losses = epoch(0)
    begun_s = time.perf_counter()
    others = epoch(EPOCHS, 2 * EPOCHS)
    return {"losses": losses, "steps_per_s": len(others) / (time.perf_counter() - begun_s)}


def save(folder, mode):
    """Train an epoch, save, and go on; return the losses after the checkpoint."""
    prepared(parallel_of(mode, world()))
    epoch(0, 1)
    dcp.save(sessions.current().trainer.state(), checkpoint_id=folder / "checkpoint")
    return {"losses": epoch(1)}


def resume(folder, mode):
    """Go on from the checkpoint of ``save``; return the losses."""
    prepared(parallel_of(mode, world()))
    state = sessions.current().trainer.state()
    dcp.load(state, checkpoint_id=folder / "checkpoint")
    sessions.current().trainer.load(state)
    return {"losses": epoch(1)}


def deferred(folder, mib):
    """Make a model on the meta device and read each rank's share from files; return the peak memory."""
    from safetensors.torch import save_file

    width = int((BLOCK / 4) ** 0.5)
    blocks = int(mib) * (1 << 20) // BLOCK
    session = sessions.current()
    if session.rank == 0:
        for number in range(blocks):
            save_file(
                {f"{number}.weight": torch.zeros(width, width)}, folder / f"{number}.safetensors"
            )
    dist.barrier()
    on_gpu = session.device.type == "cuda"
    before = torch.cuda.memory_allocated() if on_gpu else host_peak()
    training.prepare(
        lambda: nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(blocks))),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        Parallel(shard=world()),
        loss=F.mse_loss,
        weights=folder,
        checkpoints=None,
    )
    peak = torch.tensor(
        [(torch.cuda.max_memory_allocated() if on_gpu else host_peak()) - before],
        device=session.device,
    )
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    return {"peak": int(peak), "share": blocks * BLOCK // world(), "block": BLOCK}


def host_peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bandwidth(folder, mib):
    """Return the bus bandwidth of all-reduce, and that of the slowest pair, in bytes a second.

    The bus bandwidth is that of https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md:
    bytes / seconds * 2 (n - 1) / n.
    """
    session = sessions.current()
    values = torch.zeros(int(mib) << 18, device=session.device)
    size, ranks = values.numel() * 4, world()

    def seconds(work, times):
        work()
        dist.barrier()
        synchronize(session.device)
        begun_s = time.perf_counter()
        for _ in range(times):
            work()
        synchronize(session.device)
        return (time.perf_counter() - begun_s) / times

    times = 20 if session.device.type == "cuda" else 2
    reduce_s = seconds(lambda: dist.all_reduce(values), times)
    slowest = 0.0
    for first in range(ranks):
        for second in range(first + 1, ranks):
            pair = {first: (dist.send, second), second: (dist.recv, first)}.get(session.rank)
            took = seconds(lambda pair=pair: pair and pair[0](values, pair[1]), times)
            slowest = max(slowest, took)
    longest = torch.tensor([slowest], device=session.device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return {"all_reduce": size / reduce_s * 2 * (ranks - 1) / ranks, "pair": size / float(longest)}


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def world():
    return int(os.environ["WORLD_SIZE"])


PARTS = {
    "curve": curve,
    "save": save,
    "resume": resume,
    "deferred": deferred,
    "bandwidth": bandwidth,
}


def main(part, folder, *arguments):
    torch.set_num_threads(1)
    found = PARTS[part](Path(folder), *arguments)
    if training.rank() == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
