"""Trainings on the shards that Ray Train makes of a data set of Ray Data: a complete one, and one in two parts."""

import sys
from pathlib import Path

import ray
import torch
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.nn import functional
from torch.utils.data import IterableDataset

from raysm import training
from raysm.features.training.cluster.loop import session as sessions

ROWS = 70
WORKERS = 2


class Shard(IterableDataset):
    def __iter__(self):
        for row in ray.train.get_dataset_shard("train").iter_rows():
            yield torch.tensor([row["id"] / 100]), torch.tensor([row["id"]])


def loop(config):
    model = nn.Linear(1, 1)
    folder = Path(config["folder"])
    session = sessions.begin()
    training.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss=lambda output, target: functional.mse_loss(output, target / 100),
        checkpoints=training.Checkpoints(every_steps=2, folder=folder / "kept"),
    )
    with (folder / f"rank-{session.rank}").open("a") as learned:
        for batch in training.batches(Shard(), batch_size=8, epochs=2, sharded=True):
            rows = batch[1].flatten().tolist() if session.share else []
            epoch = session.position.current.epoch
            training.step(batch)
            learned.write(f"{session.position.steps} {epoch} {rows}\n")
            if session.position.steps == config["last_step"]:
                break
    sessions.end()


def train(folder, last_step=None):
    folder.mkdir(exist_ok=True)
    # In the order of the data set: otherwise a shard has the rows that were ready first.
    in_order = DataConfig(execution_options=ray.data.ExecutionOptions(preserve_order=True))
    TorchTrainer(
        loop,
        train_loop_config={"folder": str(folder), "last_step": last_step},
        datasets={"train": ray.data.range(ROWS, override_num_blocks=9)},
        dataset_config=in_order,
        scaling_config=ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(storage_path=str(folder / "ray")),
    ).fit()


def main(folder):
    ray.init(sys.argv[2])
    train(folder / "undisturbed")
    train(folder / "stopped", last_step=6)
    train(folder / "stopped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
