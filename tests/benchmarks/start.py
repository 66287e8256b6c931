"""What a job's start costs: processor seconds and seconds, of README's first command, of a second one, of a mere print.

    python3 tests/benchmarks/start.py [first second print] [--runs 3]

``first`` starts the embedded SageMaker too, and the others find it. Processor seconds are those of
the command and of all that it started, which other work on the machine hardly changes. Needs Linux.
It imports nothing of raysm, so that ``beside.py`` can run it in another tree.
"""

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

CASES = ("first", "second", "print")
COMMAND = "import sys; from raysm.cli.main import main; sys.exit(main())"
README = ("similarity", "examples/data/digits.csv.gz", "--top-k", "10", "--instances", "2")
PR_SET_CHILD_SUBREAPER = 36


class Processors:
    """Counts the processor seconds of every process below this one, daemons included."""

    def __init__(self):
        # Daemons become children of this process: else they would be lost among those of others.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def used_s(self):
        # Those that ended count at their parents, so that nothing has to look while something is
        # measured.
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        living = psutil.Process().children(recursive=True)
        return (
            ended.ru_utime
            + ended.ru_stime
            + sum(sum(process.cpu_times()[:4]) for process in living)
        )


def raysm(*words, env):
    command = [sys.executable, "-c", COMMAND, *words]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(
            f"raysm {' '.join(words)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"[
                -4000:
            ]
        )


def one_round(processors, cases, folder):
    """Return processor seconds and seconds of each case."""
    env = {**os.environ, "RAYSM_HOME": str(folder / "home")}
    # Some shells and images set it; with it every process would compile raysm anew, which no user's
    # does.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    script = folder / "prints.py"
    script.write_text("print('user code')\n")
    commands = {
        "first": (*README, "--output", str(folder / "first")),
        "second": (*README, "--output", str(folder / "second")),
        "print": ("run", str(script), "--instances", "2", "--instance-kind", "process"),
    }
    found = {}
    try:
        for case in CASES:
            # The first one makes the server that the others find.
            if case not in cases and case != "first":
                continue
            used_s, begun_s = processors.used_s(), time.monotonic()
            raysm(*commands[case], env=env)
            wall_s = time.monotonic() - begun_s
            found[case] = (processors.used_s() - used_s, wall_s)
    finally:
        raysm("local", "down", env=env)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    cases = arguments.cases or CASES
    processors, values = Processors(), defaultdict(list)
    for number in range(arguments.runs):
        with tempfile.TemporaryDirectory() as folder:
            for case, found in one_round(processors, cases, Path(folder)).items():
                values[case].append(found)
                print(
                    f"run {number + 1}, {case}: {found[0]:.2f} processor s, {found[1]:.2f} s",
                    flush=True,
                )
    print(f"\nmedians of {arguments.runs} runs")
    for case, found in values.items():
        processor_s, wall_s = (statistics.median(numbers) for numbers in zip(*found, strict=True))
        print(f"{case} job, processor s: {processor_s:8.2f}")
        print(f"{case} job, s:           {wall_s:8.2f}")


if __name__ == "__main__":
    main()
