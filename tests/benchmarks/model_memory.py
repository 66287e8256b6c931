"""Peak memory of each rank while a model is made and sharded: ``python3 -m tests.benchmarks.model_memory``.

Four ranks on this machine make a model, in three ways: each rank makes it whole, only rank 0 makes it whole, and each
rank reads its share of safetensors files. Memory is that above what a rank has after its imports.
``--computed`` prints what a rank of many would need for a model of 70 billion parameters.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

RANKS = 4
MIB = 1 << 20
BLOCK = 32 * MIB
WAYS = ("whole on each rank", "whole on rank 0", "from files")


def train(way, mib, folder):
    import torch
    from torch import nn

    from raysm import training
    from raysm.features.training.cluster.loop.session import current

    def make():
        width = int((BLOCK / 4) ** 0.5)
        return nn.Sequential(
            *(nn.Linear(width, width, bias=False) for _ in range(mib * MIB // BLOCK))
        )

    def optimizer(model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    begin = peak_mib()
    options = {"loss": nn.functional.mse_loss, "checkpoints": None}
    parallel = training.Parallel(shard=RANKS)
    if way == WAYS[0]:
        model = make()
        training.prepare(model, optimizer(model), parallel, **options)
    else:
        weights = folder if way == WAYS[2] else None
        training.prepare(make, optimizer, parallel, weights=weights, **options)
    rank = current().rank
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(peak_mib() - begin))


def save(mib, folder):
    """Write the weights as files of one block each, which take little memory to write."""
    import torch
    from safetensors.torch import save_file

    width = int((BLOCK / 4) ** 0.5)
    for number in range(mib * MIB // BLOCK):
        save_file({f"{number}.weight": torch.zeros(width, width)}, f"{folder}/{number}.safetensors")


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=2048, help="size of the model")
    parser.add_argument("--computed", action="store_true", help="compute it for 70 billion")
    parser.add_argument("--rank-of", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        train(given.rank_of[0], given.mib, given.rank_of[1])
        return
    if given.computed:
        from tests.benchmarks.computed_memory import report

        report()
        return
    print(
        f"a model of {given.mib} MiB over {RANKS} ranks: "
        f"a share is {given.mib // RANKS} MiB, a block {BLOCK // MIB} MiB"
    )
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            if way == WAYS[2]:
                save(given.mib, folder)
            command = [
                "torchrun",
                f"--nproc-per-node={RANKS}",
                "-m",
                "tests.benchmarks.model_memory",
            ]
            command += ["--mib", str(given.mib), "--rank-of", way, folder]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", *command[1:]],
                check=True,
                env=environment,
                stdout=subprocess.DEVNULL,
            )
            peaks = [
                json.loads(pathlib.Path(folder, f"{rank}.json").read_text())
                for rank in range(RANKS)
            ]
        print(
            f"{way:20}",
            "  ".join(f"rank {rank} {peak:6.0f} MiB" for rank, peak in enumerate(peaks)),
        )


if __name__ == "__main__":
    main()
