"""What training by raysm costs beside bare `torchrun`: the same script, two workers on this machine, in turn, one run.

    python3 tests/benchmarks/training.py [--runs 3] [--steps 150]

steps/s are those of a plain DDP script between its 10th step and its last one, as rank 0 sees it.
`training.step` is compared with a loop in plain DDP in the same two processes, 20 steps of each in
turn. Measuring compares the steps of `training.step`, alone in one process, with and without the observer
that measures, in turn.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import raysm
from raysm.core.protocol.home import VARIABLE
from tests.support.homes import serving

GOALS = {
    "steps/s, training.step / DDP": (0.99, "at least"),
    "steps/s, raysm / torchrun": (0.98, "at least"),
    "measuring, % of a step": (1.0, "at most"),
}

SCRIPT = """
import sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
steps = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(*[nn.Linear(768, 768) for _ in range(8)], nn.Linear(768, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(128, 768), torch.randint(0, 10, (128,))
for step in range(1, steps + 1):
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (1, 10, steps) and dist.get_rank() == 0:
        print("step", step, time.time(), flush=True)
dist.destroy_process_group()
"""

MEASURED = """
import statistics, sys, time, torch
from torch import nn
from raysm.features.training.cluster.loop import session
from raysm.features.training.cluster.measure import Measuring
from raysm.features.training.cluster.prepare import prepare, step
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(768, 768) for _ in range(8)], nn.Linear(768, 10))
prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=nn.functional.cross_entropy)
current = session.current()
measuring = next(found for found in current.observers if isinstance(found, Measuring))
timer = current.timer
others = [found for found in current.observers if found is not measuring]
batch = torch.randn(128, 768), torch.randint(0, 10, (128,))

def timed(count):
    begin = time.perf_counter()
    for _ in range(count):
        with current.span("data"):
            pass
        step(batch)
    return (time.perf_counter() - begin) / count

timed(30)
seconds = {True: [], False: []}
for number in range(int(sys.argv[1])):
    for on in ((True, False) if number % 2 else (False, True)):
        current.timer = timer if on else None
        current.observers = [*others, measuring] if on else others
        seconds[on].append(timed(1))
off_s = statistics.median(seconds[False])
each_s = statistics.median(seconds[True]) - off_s
print("figures", off_s, each_s)
"""


BESIDE_DDP = """
import statistics, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from raysm import training
torch.set_num_threads(1)

def make():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(768, 768) for _ in range(8)], nn.Linear(768, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)

training.prepare(*make(), loss=nn.functional.cross_entropy)
plain, optimizer = make()
plain = DistributedDataParallel(plain)
batch = torch.randn(128, 768), torch.randint(0, 10, (128,))

def by_ddp():
    loss = nn.functional.cross_entropy(plain(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def by_raysm():
    training.step(batch)

def timed(step):
    dist.barrier()
    begin = time.perf_counter(), time.process_time()
    for _ in range(20):
        step()
    dist.barrier()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]

timed(by_ddp), timed(by_raysm)
ratios, of_cpu = [], []
for number in range(int(sys.argv[1])):
    order = (by_ddp, by_raysm) if number % 2 else (by_raysm, by_ddp)
    seconds = {step: timed(step) for step in order}
    ratios.append(seconds[by_ddp][0] / seconds[by_raysm][0])
    of_cpu.append(seconds[by_ddp][1] / seconds[by_raysm][1])
if training.rank() == 0:
    print("figures", statistics.median(ratios), min(ratios), max(ratios), statistics.median(of_cpu), flush=True)
dist.destroy_process_group()
"""


def marks(lines):
    return {
        int(text.split()[1]): float(text.split()[2]) for text in lines if text.startswith("step ")
    }


def figures(begin_s, seen, end_s, steps):
    return {
        "steps/s": (steps - 10) / (seen[steps] - seen[10]),
        "start -> first step": seen[1] - begin_s,
        "last step -> end": end_s - seen[steps],
    }


def by_torchrun(script, steps):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    begin_s = time.time()
    ended = subprocess.run(
        [*command, str(script), str(steps)], capture_output=True, text=True, check=True
    )
    return figures(begin_s, marks(ended.stdout.splitlines()), time.time(), steps)


def by_raysm(script, steps):
    begin_s = time.time()
    job = raysm.submit(raysm.TorchScript(str(script), args=[str(steps)], workers_per_instance=2))
    job.wait(timeout=120)
    end_s = time.time()
    if job.exception() is not None:
        print("\n".join(line.text for line in job.lines()))
        raise job.exception()
    return figures(
        begin_s, marks(line.text.removeprefix("[rank 0] ") for line in job.lines()), end_s, steps
    )


def measuring_costs(pairs):
    """Return the percentage of a step that measuring takes."""
    out = subprocess.run(
        [sys.executable, "-c", MEASURED, str(pairs)], capture_output=True, text=True, check=True
    )
    said = next(line for line in out.stdout.splitlines() if line.startswith("figures "))
    step_s, each_s = map(float, said.split()[1:])
    print(f"measuring: a step of {1000 * step_s:.2f} ms takes {1e6 * each_s:.0f} µs longer")
    return 100 * max(0.0, each_s) / step_s


def beside_ddp(script, pairs):
    """Return the steps of training.step that are made while plain DDP makes one."""
    script.write_text(BESIDE_DDP)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    out = subprocess.run(
        [sys.executable, *command, str(script), str(pairs)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    said = next(line for line in out.splitlines() if line.startswith("figures "))
    ratio, least, most, of_cpu = map(float, said.split()[1:])
    print(
        f"training.step beside DDP, {pairs} pairs: {ratio:.3f} ({least:.3f} to {most:.3f}), "
        f"by seconds of CPU {of_cpu:.3f}"
    )
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--beside-ddp", action="store_true", help="compare training.step alone")
    arguments = parser.parse_args()
    if arguments.beside_ddp:
        with tempfile.TemporaryDirectory() as folder:
            beside_ddp(Path(folder) / "script.py", 20)
        return
    runs = {"torchrun": [], "raysm": []}
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as home:
        os.environ[VARIABLE] = str(home)
        os.environ["OMP_NUM_THREADS"] = "1"
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        for number in range(arguments.runs):
            for name, measured in (("torchrun", by_torchrun), ("raysm", by_raysm)):
                runs[name].append(measured(script, arguments.steps))
                print(
                    f"run {number + 1}, {name}: { ({key: round(v, 2) for key, v in runs[name][-1].items()}) }"
                )
        ratio = beside_ddp(Path(folder) / "beside.py", 20)
    report(runs, ratio, measuring_costs(200))


def report(runs, ratio, measuring_percent):
    print(f"\nmedians of {len(runs['raysm'])} runs in turn\n{'':28}{'raysm':>10}{'torchrun':>10}")
    for key in runs["raysm"][0]:
        medians = [
            statistics.median(run[key] for run in runs[name]) for name in ("raysm", "torchrun")
        ]
        print(f"{key:28}{medians[0]:10.2f}{medians[1]:10.2f}")
    ratios = [
        r["steps/s"] / t["steps/s"] for r, t in zip(runs["raysm"], runs["torchrun"], strict=True)
    ]
    found = {
        "steps/s, training.step / DDP": ratio,
        "steps/s, raysm / torchrun": statistics.median(ratios),
        "measuring, % of a step": measuring_percent,
    }
    for name, (goal, bound) in GOALS.items():
        holds = found[name] >= goal if bound == "at least" else found[name] <= goal
        print(f"{name}: {found[name]:.3f} (goal: {bound} {goal}) {'holds' if holds else 'MISSED'}")


if __name__ == "__main__":
    main()
