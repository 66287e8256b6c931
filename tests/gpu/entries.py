"""All that needs GPUs, each with what it has to show and where that number comes from.

The first entries need one GPU and little time, because a machine with GPUs may be there for minutes only.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ENTRIES", "Entry"]

PROMISES = "docs/explanation/promises.md"
JOBS = ("ray", "pyarrow", "boto3", "flask", "moto", "psutil")
"""What a job of the embedded SageMaker needs."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    name: str
    gpus: int
    expected: str
    source: str
    """Where the expected figure comes from."""
    run: Callable[[Any, Any], None]
    """(options, findings): it adds figures with their ranges, and answers that it has compared."""
    packages: tuple[str, ...] = ()
    on_cpu: bool = True
    """Whether ``--device cpu`` runs the same code, in small, on as many processes."""


def call(name, *arguments):
    """Return a function of a module of this folder, which is imported when it is called.

    The list has to be there where no package is.
    """
    module, _, function = name.partition(":")

    def run(options, findings):
        found = getattr(importlib.import_module(f"tests.gpu.{module}"), function)
        found(*arguments, options, findings)

    return run


def exactness(options, findings):
    import torch

    from tests.gpu import exactness

    exactness.compare_all(torch.device(options.device), findings, seed=options.seed)


def many_rows(options, findings):
    import torch

    from tests.gpu import exactness

    shape = options.large_rows, options.columns
    exactness.compare_many(torch.device(options.device), shape, findings)


def similarity_rate(options, findings):
    import torch

    from tests.gpu import speed

    speed.measure(torch.device(options.device), (options.rows, options.columns), findings)


def training_rate(options, findings):
    import torch

    from tests.gpu import training

    training.measure(torch.device(options.device), findings, steps=options.steps)


def curve(mode, gpus):
    return Entry(
        name=f"{mode}, {gpus} GPUs",
        gpus=gpus,
        expected="losses of one process, to 1e-5",
        source=PROMISES,
        run=call("processes:curves", gpus, mode),
        packages=("torch",),
    )


def bandwidth(gpus):
    return Entry(
        name=f"bandwidth, {gpus} GPUs",
        gpus=gpus,
        expected="0.6 of NVLink: A100 180, H100 and H200 270, B200 540 GB/s; of PCIe 9.6 GB/s",
        source="0.6, a choice, of NVLink in NVIDIA's data sheets, by the GPU's name; else of PCIe 4.0 x8",
        run=call("processes:bandwidth", gpus),
        packages=("torch",),
    )


ENTRIES = (
    Entry(
        name="GPU health",
        gpus=1,
        expected="right products, no faults of the memory",
        source="raysm/instance/gpus.py",
        run=call("processes:health"),
        packages=("torch",),
    ),
    Entry(
        name="similarity, exactness",
        gpus=1,
        expected="0 wrong",
        source="docs/explanation/exactness.md",
        run=exactness,
        packages=("torch", "numpy"),
    ),
    Entry(
        name="similarity, exactness of many rows",
        gpus=1,
        expected="0 wrong",
        source="docs/explanation/exactness.md",
        run=many_rows,
        packages=("torch", "numpy"),
    ),
    Entry(
        name="similarity, rate",
        gpus=1,
        expected="3 x torch's float32 product and topk; 0.6 of the bfloat16 product",
        source="tests/gpu/speed.py; one H200 reached both",
        run=similarity_rate,
        packages=("torch", "numpy"),
    ),
    Entry(
        name="training, rate",
        gpus=1,
        expected="0.97 of a plain loop's steps/s and accuracy",
        source="tests/gpu/training.py; one H200 reached both",
        run=training_rate,
        packages=("torch", "numpy"),
    ),
    Entry(
        name="bf16",
        gpus=1,
        expected="losses of fp32, to 0.05",
        source="8 bits of mantissa",
        run=call("processes:bf16"),
        packages=("torch",),
    ),
    Entry(
        name="torch.compile",
        gpus=1,
        expected="losses without it, to 1e-4",
        source="sums in another order",
        run=call("processes:compiled"),
        packages=("torch",),
    ),
    Entry(
        name="batch with vLLM",
        gpus=1,
        expected="an answer for each of 64 prompts",
        source="docs/guides/batch-llm.md",
        run=call("jobs:batch_llm"),
        packages=("vllm", *JOBS),
        on_cpu=False,
    ),
    *(curve(mode, 2) for mode in ("DDP", "FSDP2", "pipeline", "tensor")),
    Entry(
        name="checkpoints, 2 GPUs to 1 and back",
        gpus=2,
        expected="losses of one that went on, to 1e-5",
        source=PROMISES,
        run=call("processes:checkpoints"),
        packages=("torch",),
    ),
    Entry(
        name="deferred prepare, memory",
        gpus=2,
        expected="a rank's share and at most 2 blocks",
        source="docs/guides/training-loop.md, measured on CPUs",
        run=call("processes:deferred"),
        packages=("torch", "safetensors"),
    ),
    bandwidth(2),
    Entry(
        name="CUDA_VISIBLE_DEVICES",
        gpus=2,
        expected="workers see the GPUs that they ask for, others none",
        source="tests/instance/work/test_visible_gpus.py",
        run=call("jobs:visible_gpus"),
        packages=("torch", *JOBS),
        on_cpu=False,
    ),
    Entry(
        name="similarity, sharded over 2 GPUs",
        gpus=2,
        expected="the bytes of CPUs, computed by GPUs",
        source=PROMISES,
        run=call("jobs:sharded_similarity"),
        packages=("torch", "numpy", *JOBS),
    ),
    Entry(
        name="NCCL's transport",
        gpus=2,
        expected="a line in the log before the first step",
        source="raysm/instance/transport.py",
        run=call("jobs:transport"),
        packages=("torch", *JOBS),
        on_cpu=False,
    ),
    curve("data x pipeline x tensor", 8),
    curve("hybrid shard", 8),
    *(curve(mode, 8) for mode in ("DDP", "FSDP2", "pipeline", "tensor")),
    bandwidth(8),
)
