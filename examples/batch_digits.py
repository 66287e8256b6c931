"""Batch inference on images: every digit as a PNG, read and classified on all instances, one table of predictions.

python3 examples/batch_digits.py --instances 2 --output out/digits

The classifier is a linear one, fitted here in a moment and sent along; a network in torch goes the same way, with its
weights loaded in __init__, once for each process, and a GPU for each where the instances have any.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import raysm

DATA = Path(__file__).parent / "data"
TRAINED_ON = 1500


class Classifier:
    """Pixels to the most likely digit, and how much more likely it is than the next one."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, batch):
        pixels = batch["image"].reshape(len(batch["image"]), -1) / 255
        scores = np.c_[pixels, np.ones(len(pixels))] @ self.weights
        best = np.sort(scores, axis=1)
        return {"digit": scores.argmax(axis=1), "margin": best[:, -1] - best[:, -2]}


def digits():
    """Pixels [1797, 64] in 0 to 255, and their labels [1797]."""
    pixels = np.loadtxt(DATA / "digits.csv.gz", delimiter=",", skiprows=1) * 15.9375
    return pixels.astype(np.uint8), np.loadtxt(DATA / "digits-labels.csv.gz", skiprows=1, dtype=np.int64)


def fitted(pixels, labels):
    """Weights [65, 10] by least squares: ridge regression on the classes' indicators."""
    inputs = np.c_[pixels / 255, np.ones(len(pixels))]
    return np.linalg.solve(inputs.T @ inputs + 0.1 * np.eye(65), inputs.T @ np.eye(10)[labels])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--output", default="out/digits")
    asked = parser.parse_args()
    pixels, labels = digits()
    weights = fitted(pixels[:TRAINED_ON], labels[:TRAINED_ON])
    with tempfile.TemporaryDirectory() as folder:
        for number, row in enumerate(pixels):
            Image.fromarray(row.reshape(8, 8)).save(Path(folder) / f"{number:04}.png")
        batch = raysm.Batch(Classifier, batch_size=64, arguments={"weights": weights}, piece_rows=256)
        job = raysm.submit(batch, inputs={"images": folder}, cluster=raysm.Cluster(count=asked.instances))
        table = job.result(to=asked.output).table()
    right = table["digit"].to_numpy()[TRAINED_ON:] == labels[TRAINED_ON:]
    print(
        f"{table.num_rows} predictions; of the {len(right)} digits that were not learned from {right.mean():.1%} right"
    )


if __name__ == "__main__":
    main()
