"""A sweep on the digits: 12 trials of a small classifier on one cluster, the worst of them ended early.

python3 examples/sweep.py --instances 2 --trials 12

Each trial reports its loss on digits that it has not seen, epoch by epoch, with a checkpoint; Optuna chooses the next
parameters by what the trials before have found. The best trial's weights come back.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

import raysm

DATA = Path(__file__).parent / "data"
TRAINED_ON = 1500


def digits(folder):
    """Pixels [1797, 64] in 0 to 1, and their labels [1797]."""
    pixels = np.loadtxt(Path(folder) / "digits.csv.gz", delimiter=",", skiprows=1, dtype=np.float64) / 16
    return pixels, np.loadtxt(Path(folder) / "digits-labels.csv.gz", skiprows=1, dtype=np.int64)


def probabilities(weights, pixels):
    scores = pixels @ weights
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def train(lr, batch, decay, epochs=8):
    """What one trial does: softmax regression by stochastic gradient descent."""
    pixels, labels = digits(os.environ["SM_CHANNEL_DIGITS"])
    seen, unseen = slice(None, TRAINED_ON), slice(TRAINED_ON, None)
    folder = raysm.restored()
    state = np.load(folder / "state.npz") if folder else {"weights": np.zeros((64, 10)), "epoch": 0}
    weights, begin = state["weights"], int(state["epoch"])
    for epoch in range(begin, epochs):
        order = np.random.default_rng(epoch).permutation(TRAINED_ON)
        for first in range(0, TRAINED_ON, batch):
            rows = order[first : first + batch]
            error = probabilities(weights, pixels[seen][rows]) - np.eye(10)[labels[seen][rows]]
            weights = weights - lr * (pixels[seen][rows].T @ error / len(rows) + decay * weights)
        guessed = probabilities(weights, pixels[unseen])
        loss = -np.log(guessed[np.arange(len(guessed)), labels[unseen]] + 1e-12).mean()
        with tempfile.TemporaryDirectory() as kept:
            np.savez(Path(kept) / "state.npz", weights=weights, epoch=epoch + 1)
            accuracy = (guessed.argmax(axis=1) == labels[unseen]).mean()
            raysm.report(step=epoch, loss=loss, accuracy=accuracy, checkpoint=kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--trials", type=int, default=12)
    arguments = parser.parse_args()
    sweep = raysm.Sweep(
        train,
        space={
            "lr": raysm.loguniform(1e-3, 3),
            "batch": raysm.choice([16, 64, 256]),
            "decay": raysm.loguniform(1e-6, 1e-2),
        },
        metric="loss",
        mode="min",
        trials=arguments.trials,
        stop="asha",
        seed=1,
    )
    job = raysm.submit(sweep, cluster=raysm.Cluster(count=arguments.instances), inputs={"digits": DATA})
    job.logs(follow=True)
    result = job.result()
    print(result.table())
    weights = np.load(result.best.checkpoint / "state.npz")["weights"]
    pixels, labels = digits(DATA)
    right = (probabilities(weights, pixels[TRAINED_ON:]).argmax(axis=1) == labels[TRAINED_ON:]).mean()
    print(f"best: {result.best.params}; digits never seen: {right:.1%} right")


if __name__ == "__main__":
    main()
