"""A training to be interrupted: small, but with everything that a restart has to bring back."""

import argparse
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from raysm import training
from raysm.features.training.cluster.loop import session as sessions

SAMPLES = 121
BATCH = 16
"""Eight steps an epoch, the last of them with nine rows."""


class Noisy(Dataset):
    """Rows to which each epoch adds other noise, drawn by all three generators that people use."""

    def __init__(self, noise):
        generator = torch.Generator().manual_seed(5)
        self.rows = torch.randn(SAMPLES, 12, generator=generator)
        self.labels = (self.rows[:, :3] @ torch.randn(3, 4, generator=generator)).argmax(1)
        self.noise = noise

    def __len__(self):
        return SAMPLES

    def __getitem__(self, row):
        drawn = torch.rand(()).item() + random.random()
        return self.rows[row] + self.noise * drawn, self.labels[row]


def model_of(plain):
    torch.manual_seed(11)
    middle = [nn.ReLU()] if plain else [nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU()]
    return nn.Sequential(nn.Linear(12, 16), *middle, nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument(
        "--plain", action="store_true", help="the same result on any number of workers"
    )
    parser.add_argument("--wide", action="store_true", help="another model")
    parser.add_argument("--shard", type=int, default=1)
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--hold", type=int, help="after this step wait to be stopped or killed")
    parser.add_argument("--holding", type=int, nargs="*", default=[0, 1], help="the ranks that do")
    parser.add_argument("--losses", type=Path)
    given = parser.parse_args(arguments)
    model = model_of(given.plain)
    if given.wide:
        model.append(nn.Linear(4, 4))
    rate = training.scale(0.01, base_batch=8, warmup_epochs=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    session = sessions.current()
    degrees = {"shard": given.shard, "pipeline": given.pipeline}
    cut = given.shard * given.pipeline
    training.prepare(
        model,
        optimizer,
        training.Parallel(data=session.world_size // cut, **degrees) if cut > 1 else None,
        loss=functional.cross_entropy,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40),
        checkpoints=training.Checkpoints(
            every_steps=given.every, keep=given.keep, folder=given.checkpoints
        )
        if given.checkpoints
        else None,
        seed=3,
    )
    data = Noisy(0.0 if given.plain else 0.1)
    for batch in training.batches(data, batch_size=BATCH, epochs=given.epochs, seed=7):
        loss = training.step(batch)
        if session.rank == 0 and given.losses:
            with given.losses.open("a") as file:
                file.write(f"{session.position.steps} {loss!r}\n")
        if session.position.steps == given.hold and session.rank in given.holding:
            hold(session, given.checkpoints)
    training.save_model(given.model)
    sessions.end()
    if dist.is_initialized():
        dist.destroy_process_group()


def hold(session, folder):
    """Say that the step is reached, and wait for the end; or to be told that it is near."""
    (folder / f"held-{session.rank}").touch()
    deadline_s = time.monotonic() + 300
    while not session.stop_asked and time.monotonic() < deadline_s:
        time.sleep(0.005)
