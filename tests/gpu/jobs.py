"""Entries that are jobs of the embedded SageMaker, sent by the command line; they need Ray."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.gpu import children
from tests.support.homes import serving

ROOT = Path(__file__).parents[2]
JOB_S = 900
TAIL = 3000


@contextlib.contextmanager
def homes():
    """Yield a folder and a function that runs a raysm command with a server of its own."""
    with tempfile.TemporaryDirectory(prefix="rg") as temporary:
        folder = Path(temporary)
        with serving(folder / "home") as home:

            def raysm(*arguments, **variables):
                done = children.run(
                    [sys.executable, "-m", "raysm", *map(str, arguments)],
                    limit_s=JOB_S,
                    # ``serving`` ends the server.
                    leaves_daemons=True,
                    cwd=ROOT,
                    env=os.environ | {"RAYSM_HOME": str(home)} | variables,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                if done.returncode:
                    raise RuntimeError(f"raysm {arguments[0]} failed:\n{done.stdout[-TAIL:]}")
                return done.stdout

            yield folder, raysm


def sharded_similarity(options, findings):
    """Compare rows that lie on two instances, each with a GPU, with the same on CPUs."""
    results, engines = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        matrix = Path(temporary) / "matrix"
        matrix.mkdir()
        rng = np.random.default_rng(0)
        rows = 100_000 if options.device == "cuda" else 400
        for number in range(2):
            np.save(matrix / f"{number}.npy", rng.standard_normal((rows, 256), dtype=np.float32))
        for name, visible in (("GPUs", {}), ("CPUs", {"CUDA_VISIBLE_DEVICES": ""})):
            with homes() as (folder, raysm):
                out = folder / "out"
                command = ["similarity", matrix, "--top-k", 10, "--sharded", "--instances", 2]
                raysm(*command, "--allow-cpu", "--output", out, **visible)
                engines[name] = json.loads((out / "manifest.json").read_text())["engines"]
                results[name] = b"".join(
                    path.read_bytes() for path in sorted(out.rglob("*.parquet"))
                )
    findings.compare("bytes", "" if results["GPUs"] == results["CPUs"] else "not those of CPUs")
    if options.device == "cuda":
        used = any("CUDA" in engine for engine in engines["GPUs"])
        findings.compare("engine", "" if used else f"no GPU computed: {engines['GPUs']}")


TRANSPORT = """
import torch, torch.distributed as dist
dist.init_process_group()
torch.cuda.set_device(0)
ones = torch.ones(1 << 20, device="cuda")
dist.all_reduce(ones)
print("sum", float(ones[0]), flush=True)
"""


def transport(options, findings):
    """Look for the line on NCCL's transport between two instances, before the first step."""
    with homes() as (folder, raysm):
        script = folder / "reduce.py"
        script.write_text(TRANSPORT)
        log = raysm("train", script, "--instances", 2, "--instance-kind", "namespace")
    said = re.search(r"NCCL connects the instances by .*", log)
    findings.compare("transport", "" if said else f"no line says it:\n{log[-TAIL:]}")
    is_before = said is not None and said.start() < log.find("sum 2.0")
    findings.compare("before the first step", "" if is_before else "the sum is not 2, or earlier")
    if said:
        findings.left_out.append(f"the line is: {said[0]}")


VISIBLE = """
import ray, torch
ray.init()

@ray.remote
def count():
    return torch.cuda.device_count()

@ray.remote
class Holder:
    def look(self):
        return str(torch.cuda.get_device_properties(0).uuid), torch.cuda.device_count()

holders = [Holder.options(num_gpus=1).remote() for _ in range(2)]
seen = ray.get([holder.look.remote() for holder in holders])
for holder in holders:
    ray.kill(holder)
found = len({uuid for uuid, _ in seen}), [number for _, number in seen], ray.get(count.remote())
print("SEEN", *found, flush=True)
"""


def visible_gpus(options, findings):
    """Look which GPUs Ray's workers see that ask for one, or for none."""
    with homes() as (folder, raysm):
        script = folder / "visible.py"
        script.write_text(VISIBLE)
        log = raysm("run", script)
    found = re.search(r"SEEN (\d+) (\[.*?\]) (\d+)", log)
    assert found is not None, log[-TAIL:]
    findings.compare("two actors", "" if found[1] == "2" else "have the same GPU")
    findings.compare("each sees", "" if found[2] == "[1, 1]" else f"{found[2]} GPUs")
    findings.compare("a task without GPUs", "" if found[3] == "0" else f"sees {found[3]}")


PROMPTS = 64


def batch_llm(options, findings):
    """Answer prompts by vLLM, one engine on each GPU."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prompts = [{"id": number, "prompt": f"Count to {number}:"} for number in range(PROMPTS)]
        (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
        command = [sys.executable, "examples/batch_llm.py", str(folder / "prompts.jsonl")]
        command += ["--model", options.model, "--output", str(folder / "out")]
        with serving(folder / "home") as home:
            done = children.run(
                command,
                limit_s=JOB_S,
                leaves_daemons=True,
                cwd=ROOT,
                env=os.environ | {"RAYSM_HOME": str(home)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert done.returncode == 0, done.stdout[-TAIL:]
        table = pq.read_table(folder / "out")
    findings.compare("answers", "" if table.num_rows == PROMPTS else f"{table.num_rows} rows")
    wrote = sum(count > 0 for count in table["tokens"].to_pylist())
    findings.compare("tokens", "" if wrote == PROMPTS else f"{PROMPTS - wrote} without any")
