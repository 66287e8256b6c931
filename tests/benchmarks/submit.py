"""What submitting costs on this machine, beside the same instances started directly, and what the imports cost.

python3 tests/benchmarks/submit.py [--runs 5] [--kind process]
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
from tests.support.jobs import script_request, started

IMPORTS = ("raysm", "raysm; raysm.submit", "boto3", "ray")


def submitted(folder, kind):
    """Return the seconds from the call to the first line of the job's first instance's main process."""
    (folder / "s.py").write_text("print('user code')\n")
    begin_s = time.time()
    job = raysm.submit(raysm.Script(str(folder / "s.py")), on=raysm.Local(instance_kind=kind))
    sent_s = time.time()
    job.wait(timeout=120)
    began = {status: begin for status, begin, _ in job.describe().transitions}
    return sent_s - begin_s, began["Training"].timestamp() - begin_s


def direct(folder, kind):
    begin_s = time.time()
    with started(script_request(folder, "print('user code')\n"), folder / "job", kind) as (job, _):
        outcome = job.wait(timeout_s=120)
    return outcome.started_s - begin_s


def import_s(what):
    code = f"import time; begin = time.perf_counter(); import {what}; print(time.perf_counter() - begin)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(out.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kind", default="process", choices=["process", "namespace"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as home:
        os.environ[VARIABLE] = str(home)
        begin_s = time.time()
        raysm.Local()
        from raysm.core.client.targets.local import ensure_server

        ensure_server(home)
        print(f"start of the embedded SageMaker: {time.time() - begin_s:.2f} s")
        calls, ways, directs = [], [], []
        for number in range(arguments.runs):
            work = Path(folder) / str(number)
            work.mkdir()
            call_s, way_s = submitted(work, arguments.kind)
            calls.append(call_s)
            ways.append(way_s)
            directs.append(direct(work, arguments.kind))
    print(f"medians of {arguments.runs} runs in turn, kind {arguments.kind}, seconds")
    print(f"raysm.submit returns after          {statistics.median(calls):.3f}")
    print(f"submit -> instances started         {statistics.median(ways):.3f}")
    print(f"the same instances started directly {statistics.median(directs):.3f}")
    for what in IMPORTS:
        print(
            f"import {what:<28} {statistics.median(import_s(what) for _ in range(arguments.runs)):.3f}"
        )


if __name__ == "__main__":
    main()
