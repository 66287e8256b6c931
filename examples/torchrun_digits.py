"""Handwritten digits by DistributedDataParallel, as scripts for torchrun are written; nothing in it knows of raysm.

torchrun --nproc-per-node 2 examples/torchrun_digits.py examples/data
raysm train examples/torchrun_digits.py --instances 2 --input data=examples/data -- data --epochs 10
"""

import argparse
import gc
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load(folder):
    images = np.loadtxt(os.path.join(folder, "digits.csv.gz"), delimiter=",", skiprows=1, dtype=np.float32)
    labels = np.loadtxt(os.path.join(folder, "digits-labels.csv.gz"), skiprows=1, dtype=np.int64)
    return TensorDataset(torch.from_numpy(images / 16), torch.from_numpy(labels))


def train_epoch(model, loader, optimizer, device):
    total = torch.zeros(2, device=device)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.stack([loss.detach() * len(labels), torch.tensor(float(len(labels)), device=device)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train(arguments):
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(model, device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    dataset = load(arguments.data)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=arguments.batch_size, sampler=sampler)

    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, device)
        if rank == 0:
            print(f"epoch {epoch + 1} of {arguments.epochs}: loss {loss:.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(arguments.model_dir, "digits.pt"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    arguments = parser.parse_args()

    train(arguments)
    # DDP lies in a circle of references. Freed as late as the interpreter ends, it waits for a thread of gloo that
    # waits for the interpreter, or aborts it.
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
