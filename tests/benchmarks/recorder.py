"""What the record of the dashboard costs a whole job: the same job with it and without, in turn, on this machine.

    python3 tests/benchmarks/recorder.py [--rounds 3] [--window 60] [--settle 20] [--instances 2]

Both have their dashboard up, since somebody has asked for it; only in one of them the head looks at it for its record.
What counts is the CPU of all processes of the job over the window, those that end meanwhile too, and not its wall time:
so others' work on the machine is hardly measured. The window begins some seconds after the dashboard is up, when it
has started all of its own processes, and with the looks at everything that a young job gets: of a longer job the share
is lower. The difference of two jobs is uncertain by about what the record costs, so that it takes several rounds; what
a look costs by itself is measured by ``tests/benchmarks/dashboard.py``.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

import raysm
from raysm.client.ways import place_of, way_to
from raysm.contract.home import VARIABLE, ServerRecord
from tests.support.homes import serving

# Modules of their own, as a user's kinds are: the instances import them by name.
KINDS = """
import math
import time
from dataclasses import dataclass
from typing import ClassVar

import raysm
from raysm.request import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded(Workload):
    runner: ClassVar[str] = "recorder_runner:Waiting"
    dashboard_after_s: ClassVar[float] = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Unrecorded(Workload):
    runner: ClassVar[str] = "recorder_runner:Waiting"
    # For ever: the dashboard is there once somebody asks for it, and the head never does.
    dashboard_after_s: ClassVar[float] = math.inf
"""

RUNNER = """
import time

import ray
from raysm.workloads.runner import Runner
from raysm.workloads.termination import leave_on_sigterm


class Waiting(Runner):
    def run(self, address):
        # Some tasks and an actor, so that the record has what it has of a real job.
        ray.init(address=address, log_to_driver=False)
        leave_on_sigterm(lambda: None)
        square = ray.remote(num_cpus=0)(lambda number: number * number)
        ray.get([square.remote(number) for number in range(500)])
        time.sleep(3600)
"""


def cpu_s(home):
    """Return the CPU seconds that the processes of the job have had, those included that they have waited for."""
    total = 0.0
    for process in psutil.Process(ServerRecord.read(home).pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            # A process that ends hands its time to its parent: so nothing is lost, and nothing counted twice.
            total += sum(process.cpu_times()[:4])
    return total


def measured(home, workload, arguments):
    """Return the CPU seconds of one job over the window."""
    where = raysm.Local(instance_kind="process")
    job = raysm.submit(workload, on=where, cluster=raysm.Cluster(count=arguments.instances))
    try:
        # The first question starts the dashboard, with or without the record.
        with way_to(job, place_of(job), limit_s=300):
            time.sleep(arguments.settle)
        before_s = cpu_s(home)
        time.sleep(arguments.window)
        return cpu_s(home) - before_s
    finally:
        job.stop(timeout=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=20.0)
    parser.add_argument("--instances", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as home:
        home.mkdir()
        os.environ[VARIABLE] = str(home)
        for name, text in (("recorder_kinds", KINDS), ("recorder_runner", RUNNER)):
            (Path(folder) / f"{name}.py").write_text(text)
        sys.path.insert(0, folder)
        from recorder_kinds import Recorded, Unrecorded  # type: ignore[import-not-found]

        shares = []
        for number in range(arguments.rounds):
            # In turn, and which one is first by turns: what the machine does meanwhile happens to both.
            order = [Recorded(), Unrecorded()][:: 1 if number % 2 else -1]
            taken_s = {type(workload).__name__: measured(home, workload, arguments) for workload in order}
            shares.append((taken_s["Recorded"] - taken_s["Unrecorded"]) / arguments.window)
            print(
                f"with {taken_s['Recorded']:6.2f} s of CPU, without {taken_s['Unrecorded']:6.2f} s, "
                f"the record {100 * shares[-1]:6.2f} % of a core",
                flush=True,
            )
    print(f"median of {arguments.rounds}: {100 * statistics.median(shares):.2f} % of a core")


if __name__ == "__main__":
    main()
