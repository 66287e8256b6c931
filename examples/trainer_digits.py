"""Handwritten digits by a small Vision Transformer of Hugging Face and its Trainer; nothing in it knows of raysm.

torchrun --nproc-per-node 2 examples/trainer_digits.py examples/data
raysm train examples/trainer_digits.py --instances 2 --input data=examples/data \
    --requirement transformers --requirement accelerate -- data --epochs 5

The weights begin at random, by a configuration: nothing is downloaded.
"""

import argparse
import os

import numpy as np
import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

UNSEEN = 297
"""Of 1,797 digits, the last ones, which are not trained on."""


class Digits(torch.utils.data.Dataset):
    """Images [1, 8, 8] float32 in 0 to 1 and their labels, by the names of the model's arguments."""

    def __init__(self, folder, rows):
        images = np.loadtxt(os.path.join(folder, "digits.csv.gz"), delimiter=",", skiprows=1, dtype=np.float32)[rows]
        self.images = torch.from_numpy(images / 16).reshape(-1, 1, 8, 8)
        labels = np.loadtxt(os.path.join(folder, "digits-labels.csv.gz"), skiprows=1, dtype=np.int64)[rows]
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return {"pixel_values": self.images[row], "labels": self.labels[row]}


def small_model():
    return ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=2,
            num_channels=1,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_labels=10,
        )
    )


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "out"))
    options = parser.parse_args()

    torch.manual_seed(0)
    trainer = Trainer(
        model=small_model(),
        args=TrainingArguments(
            output_dir=os.path.join(options.model_dir, "trainer"),
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            learning_rate=3e-3,
            logging_steps=10,
            save_strategy="no",
            # Without a GPU it would take each process for the only one, unless it is told to compute on CPUs.
            use_cpu=not torch.cuda.is_available(),
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Digits(options.data, slice(None, -UNSEEN)),
        eval_dataset=Digits(options.data, slice(-UNSEEN, None)),
        compute_metrics=accuracy,
    )
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        right, workers = metrics["eval_accuracy"], trainer.args.world_size
        print(f"digits never seen: {100 * right:.1f}% right, by {workers}", flush=True)
    trainer.save_model(options.model_dir)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
