"""A pipeline on handwritten digits: each step is a job that reads what an earlier one has left.

python3 examples/pipeline.py

Spot capacity can be taken away; to see that here, first run raysm local up --scenario examples/pipeline.toml
"""

import os

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import raysm
from raysm import training

WHERE = {"on": raysm.Local(), "cluster": raysm.Cluster(count=2)}
# WHERE = {"on": raysm.AWS(role="arn:aws:iam::…"), "cluster": raysm.Cluster("ml.m5.xlarge", count=2)}


def prepare():
    """Write the digits in four shards; a row is 64 pixels and a label."""
    folder = os.environ["SM_CHANNEL_DIGITS"]
    pixels = np.loadtxt(f"{folder}/digits.csv.gz", delimiter=",", skiprows=1, dtype=np.float32) / 16
    labels = np.loadtxt(f"{folder}/digits-labels.csv.gz", skiprows=1, dtype=np.float32)
    for number, shard in enumerate(np.array_split(np.c_[pixels, labels], 4)):
        np.save(f"{os.environ['SM_OUTPUT_DATA_DIR']}/{number}.npy", shard)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(config):
    """Learn three of the shards."""
    rows = torch.from_numpy(np.concatenate([np.load(f"{os.environ['SM_CHANNEL_DIGITS']}/{n}.npy") for n in range(3)]))
    dataset = torch.utils.data.TensorDataset(rows[:, :64], rows[:, 64].long())
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    kept = training.Checkpoints(every_steps=20)
    training.prepare(model, optimizer, loss=nn.functional.cross_entropy, checkpoints=kept)
    for epoch in training.epochs(20):
        for batch in training.batches(dataset, batch_size=60):
            loss = training.step(batch)
        print(f"epoch {epoch}: loss {loss:.3f}")


class Model:
    def __init__(self, weights):
        self.network = network()
        self.network.load_state_dict(weights)

    def __call__(self, batch):
        with torch.no_grad():
            embedding = self.network[:2](torch.from_numpy(batch["values"][:, :64]))
            digit = self.network[2](embedding).argmax(dim=1)
        return {"digit": digit.numpy(), "label": batch["values"][:, 64], "embedding": embedding.numpy()}


if __name__ == "__main__":
    data = raysm.submit(raysm.Function(prepare), inputs={"digits": "examples/data"}, **WHERE)
    loop = raysm.DataParallel(train, config={"lr": 0.1})
    trained = raysm.submit(loop, inputs={"digits": data.output("data")}, limits=raysm.Limits(spot=True), **WHERE)
    trained.logs(follow=True)
    weights = load_file(trained.result().path / "model.safetensors")
    model = raysm.Batch(Model, batch_size=128, arguments={"weights": weights})
    predicted = raysm.submit(model, inputs={"digits": data.output("data/3.npy")}, **WHERE)
    table = predicted.result().table()
    labels = table["label"].to_numpy()
    print(f"{np.mean(table['digit'].to_numpy() == labels):.1%} of {len(labels)} new digits are right")
    nearest = raysm.Similarity(top_k=10, columns=("embedding",))
    compared = raysm.submit(nearest, inputs={"matrix": predicted.output()}, **WHERE)
    neighbors = np.array(compared.result().table()["neighbors"].to_pylist())
    print(f"{np.mean(labels[neighbors] == labels[:, None]):.1%} of their nearest embeddings are the same digit")
    shards = [{"key": f"shard-{n}", "input_digits": data.output(f"data/{n}.npy").uri} for n in range(3)]
    grid = raysm.Grid(model, rows=shards, name="digits", **WHERE)
    print(grid.run())
    print(f"{grid.table().num_rows} predictions of {len(shards)} shards")
