"""Entries whose ranks are processes of this machine, each with a GPU of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from raysm.instance import gpu_look, gpus
from tests.gpu import children

ROOT = Path(__file__).parents[2]
RANKS_S = 600
TAIL = 3000


def launch(options, ranks, part, *arguments, folder=None):
    """Run a part of ``tests.gpu.ranks`` in so many processes; return what rank 0 has found."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or temporary
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={ranks}", "-m", "tests.gpu.ranks", part, str(folder)]
        variables = {"OMP_NUM_THREADS": "1"}
        if options.device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        done = children.run(
            [*command, *map(str, arguments)],
            limit_s=RANKS_S,
            cwd=ROOT,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{part} of {ranks} ranks failed:\n{done.stdout[-TAIL:]}")
        return json.loads((Path(folder) / "found.json").read_text())


LOSS_ERROR = 1e-5
"""By which two layouts may differ: docs/explanation/promises.md."""


def distance(left, right):
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


def curves(ranks, mode, options, findings):
    """Compare the losses of ``ranks`` with those of one process."""
    alone = launch(options, 1, "curve", "DDP")
    shared = launch(options, ranks, "curve", mode)
    findings.add(
        f"{mode} on {ranks}: losses differ by",
        distance(alone["losses"], shared["losses"]),
        most=LOSS_ERROR,
    )
    findings.add(f"{mode} on {ranks}: steps", shared["steps_per_s"], "/s")


BF16_ERROR = 0.05
"""Bfloat16 keeps 8 bits: a rounding is up to 0.4 %, and six steps add some."""


def bf16(options, findings):
    exact = launch(options, 1, "curve", "DDP")["losses"]
    short = launch(options, 1, "curve", "DDP", "bf16")["losses"]
    findings.add("bf16: losses differ from fp32 by", distance(exact, short), most=BF16_ERROR)


COMPILED_ERROR = 1e-4
"""The compiler may sum in another order."""


def compiled(options, findings):
    plain = launch(options, 1, "curve", "DDP")
    faster = launch(options, 1, "curve", "DDP", "fp32", "yes")
    error = distance(plain["losses"], faster["losses"])
    findings.add("compiled: losses differ by", error, most=COMPILED_ERROR)
    findings.add("compiled: steps/s, times the plain", faster["steps_per_s"] / plain["steps_per_s"])


def checkpoints(options, findings):
    """Save on two ranks and go on with one, and the other way round."""
    for before, after in ((2, 1), (1, 2)):
        with tempfile.TemporaryDirectory() as folder:
            went_on = launch(options, before, "save", "FSDP2", folder=folder)["losses"]
            resumed = launch(options, after, "resume", "FSDP2", folder=folder)["losses"]
        findings.add(
            f"saved by {before}, resumed by {after}: losses differ by",
            distance(went_on, resumed),
            most=LOSS_ERROR,
        )


MODEL_MIB = {"cuda": 8192, "cpu": 256}


def deferred(options, findings):
    with tempfile.TemporaryDirectory() as folder:
        found = launch(options, 2, "deferred", MODEL_MIB[options.device], folder=folder)
    # Of a CPU, ranks have the process group's buffers among their memory.
    blocks = (found["peak"] - found["share"]) / found["block"]
    findings.add(
        "peak of a rank above its share, in blocks",
        blocks,
        most=2.0 if options.device == "cuda" else None,
    )


NVLINK = {"A100": 300e9, "H100": 450e9, "H200": 450e9, "B200": 900e9}
"""Bytes a second in one direction, half of what NVIDIA's data sheets give for the GPUs of HGX
boards; by a part of the name that torch gives the GPU."""
OTHER_BOARDS = ("PCIe", "NVL")
"""In names of GPUs that are cards: NVLink connects two of them at most, or four, or none."""
PCIE = 16e9
"""PCIe 4.0 with 8 lanes in one direction, which the GPUs of g5 and g6 have at least."""
REACHED = 0.6
"""The share of it that a large all-reduce has to reach: a choice, and no measurement."""


def link_rate(device):
    """Return the bytes a second between GPUs in one direction, as far as their name tells."""
    if any(word in device for word in OTHER_BOARDS):
        return PCIE
    return next((rate for name, rate in NVLINK.items() if name in device), PCIE)


def bandwidth(ranks, options, findings):
    found = launch(options, ranks, "bandwidth", 1024 if options.device == "cuda" else 4)
    least = REACHED * link_rate(findings.device) / 1e9 if options.device == "cuda" else None
    findings.add("all-reduce, bus bandwidth", found["all_reduce"] / 1e9, "GB/s", least=least)
    findings.add("slowest pair", found["pair"] / 1e9, "GB/s", least=least)


def health(options, findings):
    """Let raysm's own check look at each GPU, as it does before a workload begins."""
    import torch

    if options.device == "cpu":
        is_right = gpu_look.is_product_right(torch, "cpu")
        findings.compare("the CPU", "" if is_right else "a wrong matrix product")
        return
    command = [sys.executable, "-m", "raysm.instance.gpu_look"]
    done = children.run(
        command,
        limit_s=RANKS_S,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    ends = {each["ended"]: each["problem"] for each in facts if "ended" in each}
    for number in range(torch.cuda.device_count()):
        findings.compare(f"GPU {number}", ends.get(number, f"no answer: {done.stderr[-TAIL:]}"))
    for each in facts:
        for sentence in gpus.memory_faults("here", each):
            findings.compare("memory", sentence)
