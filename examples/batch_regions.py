"""Batch inference where the data lie: shards of images in two regions, a job for each, and one table of predictions.

python3 examples/batch_regions.py --output out/digits.parquet

Two embedded regions play on this machine, and a shard is a folder of it; on AWS it is s3://…, in a bucket of its own
region, and on=raysm.AWS(…) the only other change. The same command again predicts no shard twice.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from batch_digits import TRAINED_ON, Classifier, digits, fitted
from PIL import Image

import raysm

REGIONS = ("eu-central-1", "us-west-2")


def shards(pixels, folder):
    """Write each digit as a PNG, half of them for either region; return the rows of the grid."""
    rows = []
    for region, numbers in zip(REGIONS, np.array_split(np.arange(len(pixels)), len(REGIONS)), strict=True):
        shard = folder / region
        shard.mkdir()
        for number in numbers:
            Image.fromarray(pixels[number].reshape(8, 8)).save(shard / f"{number:04}.png")
        rows.append({"key": f"digits-{region}", "region": region, "input_images": str(shard)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--output", default="out/digits.parquet")
    asked = parser.parse_args()
    pixels, labels = digits()
    weights = fitted(pixels[:TRAINED_ON], labels[:TRAINED_ON])
    with tempfile.TemporaryDirectory() as folder:
        grid = raysm.Grid(
            raysm.Batch(Classifier, batch_size=64, arguments={"weights": weights}, piece_rows=256),
            rows=shards(pixels, Path(folder)),
            name="digits",
            on=raysm.Local(regions=REGIONS),
            count=asked.instances,
        )
        print(grid.run())
    for row in grid.rows():
        print(f"{row.key}: {row.state}, a job in {row.region}")
    grid.write_table(asked.output)
    table = grid.table()
    right = table["digit"].to_numpy() == labels[[int(Path(name).stem) for name in table["file"].to_pylist()]]
    print(f"{table.num_rows} predictions of {len(set(table['key'].to_pylist()))} shards, {right.mean():.1%} right")


if __name__ == "__main__":
    main()
