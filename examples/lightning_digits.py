"""Handwritten digits by Lightning, as its scripts for torchrun are written; nothing in it knows of raysm.

torchrun --nproc-per-node 2 examples/lightning_digits.py examples/data
raysm train examples/lightning_digits.py --instances 2 --input data=examples/data --requirement lightning \
    -- data --epochs 5
"""

import argparse
import os

import lightning
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Classifier(lightning.LightningModule):
    """Two layers, and how they learn."""

    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, number):
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch, number):
        images, labels = batch
        right = (self.layers(images).argmax(-1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def load(folder):
    images = np.loadtxt(os.path.join(folder, "digits.csv.gz"), delimiter=",", skiprows=1, dtype=np.float32)
    labels = np.loadtxt(os.path.join(folder, "digits-labels.csv.gz"), skiprows=1, dtype=np.int64)
    return TensorDataset(torch.from_numpy(images / 16), torch.from_numpy(labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "out"))
    options = parser.parse_args()

    lightning.seed_everything(0)
    learned, unseen = random_split(load(options.data), [1500, 297], torch.Generator().manual_seed(0))
    # What torchrun started: Lightning starts processes of its own where nobody has.
    of_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        devices=of_node,
        num_nodes=int(os.environ.get("WORLD_SIZE", 1)) // of_node,
        default_root_dir=options.model_dir,
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    model = Classifier(lr=0.1)
    loaders = (
        DataLoader(learned, batch_size=options.batch_size, shuffle=True),
        DataLoader(unseen, batch_size=options.batch_size),
    )
    trainer.fit(model, *loaders)
    if trainer.is_global_zero:
        right = 100 * trainer.callback_metrics["accuracy"]
        print(f"digits never seen: {right:.1f}% right, by {trainer.world_size}", flush=True)
        os.makedirs(options.model_dir, exist_ok=True)
        torch.save(model.layers.state_dict(), os.path.join(options.model_dir, "digits.pt"))
    trainer.strategy.barrier()


if __name__ == "__main__":
    main()
