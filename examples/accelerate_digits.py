"""Handwritten digits by a loop of one's own with Accelerate; nothing in it knows of raysm.

torchrun --nproc-per-node 2 examples/accelerate_digits.py examples/data
raysm train examples/accelerate_digits.py --instances 2 --input data=examples/data --requirement accelerate \
    -- data --epochs 5
"""

import argparse
import os

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def load(folder):
    images = np.loadtxt(os.path.join(folder, "digits.csv.gz"), delimiter=",", skiprows=1, dtype=np.float32)
    labels = np.loadtxt(os.path.join(folder, "digits-labels.csv.gz"), skiprows=1, dtype=np.int64)
    return TensorDataset(torch.from_numpy(images / 16), torch.from_numpy(labels))


def share_of_right(accelerator, model, loader):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            # Without the rows that were added so that all processes have as many.
            predicted, labels = accelerator.gather_for_metrics((model(images).argmax(-1), labels))
            right, seen = right + int((predicted == labels).sum()), seen + len(labels)
    model.train()
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "out"))
    options = parser.parse_args()

    torch.manual_seed(0)
    # Without a GPU it would take each process for the only one, unless it is told to compute on CPUs.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    learned, unseen = random_split(load(options.data), [1500, 297], torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model, optimizer, loader, unseen_loader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        DataLoader(learned, batch_size=options.batch_size, shuffle=True),
        DataLoader(unseen, batch_size=options.batch_size),
    )
    for epoch in range(options.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
        # Not accelerator.print, which prints once on every node.
        if accelerator.is_main_process:
            print(f"epoch {epoch + 1} of {options.epochs}: loss {loss.item():.4f}", flush=True)
    right = share_of_right(accelerator, model, unseen_loader)
    if accelerator.is_main_process:
        print(f"digits never seen: {100 * right:.1f}% right, by {accelerator.num_processes}", flush=True)
    os.makedirs(options.model_dir, exist_ok=True)
    accelerator.save(accelerator.unwrap_model(model).state_dict(), os.path.join(options.model_dir, "digits.pt"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
