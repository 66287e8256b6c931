"""A small Vision Transformer on images of digits, trained data-parallel, as a pipeline, or both.

python3 examples/train_vit.py --data 2 --pipeline 2 --instances 2    # two pipelines of two stages
python3 examples/train_vit.py --data 2 --pipeline 4                  # eight workers on one instance
python3 examples/train_vit.py --train photos/train --validation photos/val --size 64    # CLASS/IMAGE in each folder
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from digit_images import write_digits
from PIL import Image
from torch.nn import functional as F
from vision_transformer import vision_transformer

import raysm
from raysm import training


class ImageFolder(torch.utils.data.Dataset):
    """folder/CLASS/IMAGE as images [3, size, size] float32 in 0 to 1; the classes in the order of their names."""

    def __init__(self, folder, size):
        self.files = sorted(path for path in Path(folder).glob("*/*") if path.is_file())
        self.classes = sorted({path.parent.name for path in self.files})
        self.size = size

    def __len__(self):
        return len(self.files)

    def __getitem__(self, row):
        path = self.files[row]
        pixels = np.array(Image.open(path).convert("RGB").resize((self.size, self.size)), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255, self.classes.index(path.parent.name)


def accuracy(scores, classes):
    return (scores.argmax(-1) == classes).float().mean()


def train(config):
    """What every worker does."""
    size = config["size"]
    images = ImageFolder(os.environ["SM_CHANNEL_TRAIN"], size)
    validation = ImageFolder(os.environ["SM_CHANNEL_VALIDATION"], size)
    torch.manual_seed(0)
    model = vision_transformer(channels=3, size=size, patch=size // 4, classes=len(images.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    microbatches = config["pipeline"] if config["pipeline"] > 1 else None
    parallel = training.Parallel(data=config["data"], pipeline=config["pipeline"], microbatches=microbatches)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy)
    for epoch in training.epochs(config["epochs"]):
        for batch in training.batches(images, batch_size=config["batch_size"]):
            training.report(loss=training.step(batch))
        means = training.evaluate(validation, batch_size=config["batch_size"], metrics={"accuracy": accuracy})
        training.report(step=epoch + 1, validation_loss=means["loss"], accuracy=means["accuracy"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=int, default=2, help="replicas of the model")
    parser.add_argument("--pipeline", type=int, default=1, help="stages of each replica")
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--train", default="out/digits/train", help="a folder, or s3://…, of CLASS/IMAGE")
    parser.add_argument("--validation", default="out/digits/val", help="the same, of images to validate with")
    parser.add_argument("--size", type=int, default=8, help="images are resized to so many pixels, a multiple of 4")
    parser.add_argument("--output", default="out/vit")
    parser.add_argument("--on", choices=("local", "aws"), default="local")
    parser.add_argument("--role", default="", help="with --on aws: the ARN of the job's role")
    parser.add_argument("--instance-type", default="local", help="with --on aws: ml.g5.12xlarge")
    asked = parser.parse_args()
    if asked.train == parser.get_default("train"):
        write_digits("out/digits")
    config = {name: getattr(asked, name) for name in ("data", "pipeline", "lr", "batch_size", "epochs", "size")}
    job = raysm.submit(
        raysm.DataParallel(train, config=config, workers=asked.data * asked.pipeline),
        cluster=raysm.Cluster(asked.instance_type, count=asked.instances),
        inputs={"train": asked.train, "validation": asked.validation},
        on=raysm.AWS(role=asked.role) if asked.on == "aws" else raysm.Local(),
    )
    job.logs(follow=True)
    print(f"the model is in {os.fspath(job.result(to=asked.output))}")
    print("epoch  validation loss  accuracy")
    for loss, share in zip(job.metrics("validation_loss"), job.metrics("accuracy"), strict=True):
        print(f"{loss.step:5}  {loss.value:15.6f}  {share.value:8.1%}")


if __name__ == "__main__":
    main()
