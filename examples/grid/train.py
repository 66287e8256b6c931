"""Handwritten digits of one campaign: softmax regression, its batches shared by all instances of the job.

Each instance has an actor with its share of the images; the driver averages their gradients, and saves what it has
now and then: a job on spot capacity that loses its instances goes on there.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import ray

import raysm

EPOCHS = 200
SAVED_EVERY = 20


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Worker:
    """One instance's share."""

    def __init__(self, images, labels):
        self.images, self.labels = images, np.eye(10)[labels]

    def step(self, weights, number, batch):
        chosen = np.arange(number * batch, (number + 1) * batch) % len(self.images)
        images, labels = self.images[chosen], self.labels[chosen]
        scores = np.exp(images @ weights - (images @ weights).max(axis=1, keepdims=True))
        odds = scores / scores.sum(axis=1, keepdims=True)
        loss = -np.log((odds * labels).sum(axis=1) + 1e-12).mean()
        return images.T @ (odds - labels) / batch, loss


def save(state, path):
    """Write beside, then rename: an instance may be taken away in the middle of it."""
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        np.savez(file, **state)
    beside.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaign")
    parser.add_argument("--lr")
    parser.add_argument("--batch", type=int, default=32)
    asked = parser.parse_args()
    # Here, and not by argparse, which says of a typo no more than that it exits with 2.
    lr = float(asked.lr)
    data = np.load(next(Path(os.environ["SM_CHANNEL_DATA"]).glob("*.npz")))
    ray.init(address="auto", log_to_driver=False)
    count = len(ray.nodes())
    workers = [Worker.remote(data["images"][rank::count], data["labels"][rank::count]) for rank in range(count)]
    path = Path(os.environ["RAYSM_STATE"]) / "weights.npz"
    state = dict(np.load(path)) if path.exists() else {"weights": np.zeros((64, 10)), "epochs": 0}
    weights, begin, began_s, images = state["weights"], int(state["epochs"]), time.monotonic(), 0
    if begin:
        print(f"campaign {asked.campaign} goes on behind epoch {begin}")
    for epoch in range(begin, EPOCHS):
        for number in range(len(data["images"]) // (asked.batch * count) + 1):
            steps = ray.get([worker.step.remote(weights, number, asked.batch) for worker in workers])
            weights -= lr * np.mean([gradient for gradient, _ in steps], axis=0)
            images += asked.batch * count
        rate = images / (time.monotonic() - began_s)
        raysm.report(step=epoch, loss=float(np.mean([loss for _, loss in steps])), images_per_s=rate)
        if (epoch + 1) % SAVED_EVERY == 0:
            save({"weights": weights, "epochs": epoch + 1}, path)
            print(f"epoch {epoch + 1} of {EPOCHS}", flush=True)
    right = ((data["images"] @ weights).argmax(axis=1) == data["labels"]).mean()
    (Path(os.environ["SM_MODEL_DIR"]) / "digits.json").write_text(
        json.dumps({"campaign": asked.campaign, "accuracy": right, "weights": weights.tolist()})
    )
    print(f"campaign {asked.campaign}: {count} instances, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
