"""Handwritten digits of one campaign: softmax regression, its batches shared by all instances of the job.

Each instance has an actor with its share of the images; the driver averages their gradients.
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
    weights, began_s, images = np.zeros((64, 10)), time.monotonic(), 0
    for epoch in range(EPOCHS):
        for number in range(len(data["images"]) // (asked.batch * count) + 1):
            steps = ray.get([worker.step.remote(weights, number, asked.batch) for worker in workers])
            weights -= lr * np.mean([gradient for gradient, _ in steps], axis=0)
            images += asked.batch * count
        rate = images / (time.monotonic() - began_s)
        raysm.report(step=epoch, loss=float(np.mean([loss for _, loss in steps])), images_per_s=rate)
    right = ((data["images"] @ weights).argmax(axis=1) == data["labels"]).mean()
    (Path(os.environ["SM_MODEL_DIR"]) / "digits.json").write_text(
        json.dumps({"campaign": asked.campaign, "accuracy": right, "weights": weights.tolist()})
    )
    print(f"campaign {asked.campaign}: {count} instances, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
