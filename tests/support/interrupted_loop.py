"""A training that is stopped, loses a worker, loses an instance, and ends as if nothing had happened."""

import json
import os
import signal
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.features.training.cluster.loop.session import current


def loop(config):
    torch.set_num_threads(1)  # the order of sums, too, must be the same everywhere
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    kept = training.Checkpoints(every_steps=3) if config.get("keeps") else None
    training.prepare(model, optimizer, loss=functional.cross_entropy, checkpoints=kept)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    print("attempt", attempt, "local rank", os.environ["LOCAL_RANK"], flush=True)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(60, 6, generator=generator), torch.arange(60) % 3)
    session = current()
    for batch in training.batches(data, batch_size=8, epochs=2):
        training.report(loss=training.step(batch))
        if session.rank == 1 and session.position.steps == config.get("die"):
            if attempt == "0":
                os.kill(os.getpid(), signal.SIGKILL)
        if session.rank == 1 and session.position.steps == config.get("hold"):
            print(f"holding after step {session.position.steps}", flush=True)
            deadline_s = time.monotonic() + 300
            while not session.stop_asked and time.monotonic() < deadline_s:
                time.sleep(0.01)
    training.save_model()


if __name__ == "__main__":
    loop(json.loads(sys.argv[1]))
