"""``python3 -m tests.benchmarks.watchdog``: steps of a training while the watchdog looks, and while not.

One job of two ranks alternates between phases in which it prints nothing, and is looked at every
2.5 s (``stall_s=10``), and phases in which it prints each second, and is not. So both meet the same
machine. With the default of five minutes a silent job is looked at 30 times more rarely.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import raysm

STALL_S = 10.0
DEFAULT_S = raysm.Limits().stall_s
SCRIPT = """\
import json
import sys
import time

import torch
import torch.distributed as dist

PHASE_S = 15.0
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
data = torch.rand(32, 200)
rank = dist.get_rank()
steps = {True: 0, False: 0}
seconds = {True: 0.0, False: 0.0}
go_on = torch.ones(1)
for phase in range(2 * int(sys.argv[1]) + 2):
    is_silent = phase % 2 == 0
    begun_s = printed_s = time.monotonic()
    count = 0
    go_on.fill_(1)
    while go_on.item() > 0:
        model(data).sum().backward()
        count += 1
        now_s = time.monotonic()
        if not is_silent and rank == 0 and now_s - printed_s > 1:
            print("step", count, flush=True)
            printed_s = now_s
        if rank == 0 and now_s - begun_s > PHASE_S:
            go_on.fill_(0)
        dist.broadcast(go_on, src=0)
    if phase > 1:  # the first ones warm up
        steps[is_silent] += count
        seconds[is_silent] += time.monotonic() - begun_s
if rank == 0:
    rates = [steps[is_silent] / seconds[is_silent] for is_silent in (True, False)]
    print("rates", json.dumps(rates), flush=True)
"""


def measure(pairs):
    """Return the steps a second while the job is looked at, and while it is not."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "silent.py"
        script.write_text(SCRIPT)
        job = raysm.submit(
            raysm.TorchScript(str(script), args=[str(pairs)]),
            cluster=raysm.Cluster(count=2),
            limits=raysm.Limits(stall_s=STALL_S),
        )
        try:
            job.wait()
        finally:
            job.stop()
    found = [line.text for line in job.lines() if "rates [" in line.text]
    return json.loads(found[-1].partition("rates ")[2])


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m tests.benchmarks.watchdog")
    parser.add_argument("--pairs", type=int, default=10)
    looked_at, alone = measure(parser.parse_args(arguments).pairs)
    ratio = looked_at / alone
    rarer = DEFAULT_S / STALL_S
    print(f"looked at every {STALL_S / 4:g} s: {looked_at:.1f} steps/s, not: {alone:.1f} steps/s")
    print(
        f"ratio {ratio:.4f}; by default, {rarer:g} times more rarely: {1 - (1 - ratio) / rarer:.5f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
