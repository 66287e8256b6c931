"""A small convolutional network learns handwritten digits, data-parallel (DDP) over the workers of a cluster.

python3 examples/digits_cnn.py --instances 2 --epochs 10 --output out/digits

One more instance is one more number: `--instances 3`. The loss curve is the same, because the batch is the whole
cluster's. The model comes back as plain safetensors and is tried here, in plain torch.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

import raysm
from raysm import training

DATA = Path(__file__).parent / "data"
TRAINED_ON = 1500


def digits(folder):
    """Images [1797, 1, 8, 8] float32 in 0 to 1, and their labels [1797] int64."""
    images = np.loadtxt(Path(folder) / "digits.csv.gz", delimiter=",", skiprows=1, dtype=np.float32)
    labels = np.loadtxt(Path(folder) / "digits-labels.csv.gz", skiprows=1, dtype=np.int64)
    return torch.from_numpy(images).reshape(-1, 1, 8, 8) / 16, torch.from_numpy(labels)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def train(config):
    """What every worker does."""
    images, labels = digits(os.environ["SM_CHANNEL_DIGITS"])
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    model, optimizer = training.prepare(
        model, optimizer, loss=F.cross_entropy, checkpoints=training.Checkpoints(every_steps=50, keep=2)
    )
    known = torch.utils.data.TensorDataset(images[:TRAINED_ON], labels[:TRAINED_ON])
    for batch in training.batches(known, batch_size=config["batch_size"], epochs=config["epochs"]):
        loss = training.step(batch)
        training.report(loss=loss)


def accuracy(folder):
    """Return the share of the digits that it has never seen and that the model in `folder` names rightly."""
    model = network()
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    images, labels = digits(DATA)
    guessed = model.eval()(images[TRAINED_ON:]).argmax(dim=1)
    return (guessed == labels[TRAINED_ON:]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=60)
    parser.add_argument("--output", default="out/digits")
    arguments = parser.parse_args()
    job = raysm.submit(
        raysm.DataParallel(train, config={"lr": 0.1, "batch_size": arguments.batch_size, "epochs": arguments.epochs}),
        cluster=raysm.Cluster(count=arguments.instances),
        inputs={"digits": str(DATA)},
    )
    job.logs(follow=True)
    print(f"accuracy on digits never seen: {accuracy(job.result(to=arguments.output)):.1%}")


if __name__ == "__main__":
    main()
