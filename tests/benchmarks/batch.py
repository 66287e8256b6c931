"""What batch inference by raysm costs beside bare Ray Data: the same images, model and processes, in turn, one run.

    python3 tests/benchmarks/batch.py [--images 4000] [--runs 3]

Both read PNGs of 64 x 64, call a small network of torch on batches of 64 in a process for each CPU,
and write Parquet.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import ray
from PIL import Image
from pyarrow import parquet

import raysm
from raysm.core.protocol.names import BASE_DIR, LABEL_HOST
from raysm.core.protocol.paths import Paths
from tests.support.batches import run

GOAL = 0.95
BATCH = 64


class Network:
    """A convolution and a linear layer: some milliseconds a batch."""

    def __init__(self):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch = torch
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 5), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(),
            torch.nn.Linear(1024, 10),
        )  # fmt: skip

    def __call__(self, batch):
        images = np.stack(list(batch["image"])).reshape(-1, 1, 64, 64).astype(np.float32) / 255
        with self.torch.no_grad():
            return {"label": self.layers(self.torch.from_numpy(images)).argmax(1).numpy()}


class Beside(Network):
    """The same for Ray Data, where a predictor returns its keys itself."""

    def __call__(self, batch):
        return {"file": batch["path"], **Network.__call__(self, batch)}


def by_raysm(base, out):
    outcome, _ = run(raysm.Batch(Network, batch_size=BATCH), base, out)
    return outcome.rows


def by_ray_data(base, out):
    data = ray.data.read_images(str(Paths(base).channel("data")), mode="L", include_paths=True)
    # From one on: a pool that takes every CPU at once leaves none for reading, and waits for ever.
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=os.cpu_count())
    data = data.map_batches(Beside, batch_size=BATCH, compute=pool, num_cpus=1)
    data.write_parquet(str(out))
    # Of the files: data.count() would do all of the work a second time.
    return sum(parquet.read_metadata(path).num_rows for path in out.rglob("*.parquet"))


def timed(work, base, folder, images):
    out = Path(tempfile.mkdtemp(dir=folder))
    begin = time.perf_counter()
    rows = work(base, out)
    seconds = time.perf_counter() - begin
    shutil.rmtree(out)
    assert rows == images, f"{rows} predictions of {images} images: nothing that could be compared"
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp") as temporary:
        folder = Path(temporary)
        base = folder / "ml"
        (base / "input" / "config").mkdir(parents=True)
        (base / "input" / "config" / "resourceconfig.json").write_text(
            '{"current_host": "algo-1", "hosts": ["algo-1"]}'
        )
        images = Paths(base).channel("data")
        images.mkdir(parents=True)
        rng = np.random.default_rng(0)
        for number in range(asked.images):
            Image.fromarray(rng.integers(0, 256, (64, 64), dtype=np.uint8)).save(
                images / f"{number:06}.png"
            )
        os.environ[BASE_DIR] = str(base)
        ray.init(
            labels={LABEL_HOST: "algo-1"},
            log_to_driver=False,
            include_dashboard=False,
            _temp_dir=str(folder / "r"),
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        # The workers cannot import this program: its classes travel whole.
        ray.cloudpickle.register_pickle_by_value(sys.modules[Network.__module__])
        took = {"raysm": [], "Ray Data": []}
        for turn in range(asked.runs + 1):
            for name, work in (("raysm", by_raysm), ("Ray Data", by_ray_data)):
                seconds = timed(work, base, folder, asked.images)
                # The first round reads the files from the disk, and imports.
                if turn:
                    took[name].append(seconds)
                    print(f"{name}: {asked.images / seconds:,.0f} rows/s", flush=True)
        ray.shutdown()
    ratio = statistics.median(took["Ray Data"]) / statistics.median(took["raysm"])
    print(f"rows/s, raysm / Ray Data: {ratio:.2f} (goal {GOAL})")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
