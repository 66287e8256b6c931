"""A small Vision Transformer, trained data-parallel, as a pipeline, or both: PARALLEL is the line that changes.

python3 examples/train_vit.py --instances 2 --workers-per-instance 2 --parallel hybrid --output out/vit
python3 examples/train_vit.py --images photos/ --output out/photos    # photos/CLASS/IMAGE instead of the digits

Each way follows the same loss curve and leaves the same plain safetensors.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from vision_transformer import vision_transformer

import raysm
from raysm import training

PARALLEL = {
    "data": dict(),
    "pipeline": dict(pipeline=4, microbatches=4),
    "hybrid": dict(data=2, pipeline=2, microbatches=4),
}


class Digits(torch.utils.data.TensorDataset):
    """Images [1797, 1, 8, 8] float32 in 0 to 1, and their labels [1797] int64."""

    model = dict(channels=1, size=8, patch=2, classes=10)

    def __init__(self, folder):
        images = np.loadtxt(Path(folder) / "digits.csv.gz", delimiter=",", skiprows=1, dtype=np.float32)
        labels = np.loadtxt(Path(folder) / "digits-labels.csv.gz", skiprows=1, dtype=np.int64)
        super().__init__(torch.from_numpy(images / 16).reshape(-1, 1, 8, 8), torch.from_numpy(labels))


class ImageFolder(torch.utils.data.Dataset):
    """folder/CLASS/IMAGE as images [3, 64, 64] float32 in 0 to 1; the classes in the order of their names."""

    def __init__(self, folder, size=64):
        self.files = sorted(path for path in Path(folder).glob("*/*") if path.is_file())
        self.classes = sorted({path.parent.name for path in self.files})
        self.model = dict(channels=3, size=size, patch=8, classes=len(self.classes))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, row):
        from PIL import Image

        side = self.model["size"]
        pixels = np.array(Image.open(self.files[row]).convert("RGB").resize((side, side)), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255, self.classes.index(self.files[row].parent.name)


def train(config):
    """What every worker does."""
    images = os.environ.get("SM_CHANNEL_IMAGES")
    dataset = ImageFolder(images) if images else Digits(os.environ["SM_CHANNEL_DIGITS"])
    torch.manual_seed(0)
    model = vision_transformer(**dataset.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    model, optimizer = training.prepare(model, optimizer, training.Parallel(**config["parallel"]), loss=F.cross_entropy)
    for batch in training.batches(dataset, batch_size=config["batch_size"], epochs=config["epochs"]):
        training.report(loss=training.step(batch))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parallel", choices=PARALLEL, default="data")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--workers-per-instance", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--images", help="a folder, or s3://…, of CLASS/IMAGE")
    parser.add_argument("--output", default="out/vit")
    asked = parser.parse_args()
    config = {"lr": 1e-3, "batch_size": asked.batch_size, "epochs": asked.epochs, "parallel": PARALLEL[asked.parallel]}
    job = raysm.submit(
        raysm.DataParallel(train, config=config, workers_per_instance=asked.workers_per_instance),
        cluster=raysm.Cluster(count=asked.instances),
        inputs={"images": asked.images} if asked.images else {"digits": str(Path(__file__).parent / "data")},
    )
    job.logs(follow=True)
    for metric in job.metrics("loss"):
        print(f"step {metric.step}: loss {metric.value:.6f}")
    print(f"the model is in {os.fspath(job.result(to=asked.output))}")


if __name__ == "__main__":
    main()
