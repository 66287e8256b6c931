"""What a job's start costs: processor seconds and seconds, of README's first command, of a second one, of a mere print.

    python3 tests/benchmarks/start.py [first second print] [--runs 3] [--processes]

``first`` starts the embedded SageMaker too, and the others find it. Processor seconds are those of the command and of
all that it started, which other work on the machine hardly changes; ``--processes`` prints them by process. Needs
Linux. It imports nothing of raysm, so that ``beside.py`` can run it in another tree.
"""

import argparse
import ctypes
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

CASES = ("first", "second", "print")
COMMAND = "import sys; from raysm.cli.main import main; sys.exit(main())"
README = ("similarity", "examples/data/digits.csv.gz", "--top-k", "10", "--instances", "2")
PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


class Sampler:
    """Adds up what every process below this one uses."""

    def __init__(self):
        # Daemons become children of this process: else they would be lost among those of others.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.used_s, self.commands = {}, {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self):
        parents, lines = {}, {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)], lines[int(name)] = int(fields[1]), fields
        below, front = set(), {os.getpid()}
        while front:
            front = {pid for pid, parent in parents.items() if parent in front} - below
            below |= front
        for pid in below:
            # A number is soon another's: with its start it is one process's.
            key = (pid, lines[pid][19])
            self.used_s[key] = (int(lines[pid][11]) + int(lines[pid][12])) / TICKS
            self._name(key)

    def _name(self, key):
        try:
            words = Path(f"/proc/{key[0]}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return
        # A process that execs has another line than before; the last one says what it was for.
        if any(words):
            self.commands[key] = re.sub(r"/\S*/", "", " ".join(words))[:100]

    def reset(self):
        """Forget who has ended, and count from now."""
        self.look()
        self._before = dict(self.used_s)

    def processor_s(self):
        """Return the seconds since ``reset``, by process."""
        self.look()
        return {key: used - self._before.get(key, 0.0) for key, used in self.used_s.items()}

    def close(self):
        self._over.set()
        self._thread.join()


def raysm(*words, env):
    command = [sys.executable, "-c", COMMAND, *words]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(
            f"raysm {' '.join(words)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"[-4000:]
        )


def one_round(sampler, cases, folder, show):
    """Return processor seconds and seconds of each case."""
    env = {**os.environ, "RAYSM_HOME": str(folder / "home")}
    # Some shells and images set it; with it every process would compile raysm anew, which no user's does.
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
            sampler.reset()
            begun_s = time.monotonic()
            raysm(*commands[case], env=env)
            wall_s = time.monotonic() - begun_s
            used = sampler.processor_s()
            found[case] = (sum(used.values()), wall_s)
            if show:
                for key, seconds in sorted(used.items(), key=lambda item: -item[1]):
                    if seconds >= 0.02:
                        print(f"  {case:8}{seconds:6.2f}  {sampler.commands.get(key, '?')}")
    finally:
        raysm("local", "down", env=env)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--processes", action="store_true", help="a line for each process")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    cases = arguments.cases or CASES
    sampler, values = Sampler(), defaultdict(list)
    try:
        for number in range(arguments.runs):
            with tempfile.TemporaryDirectory() as folder:
                for case, found in one_round(sampler, cases, Path(folder), arguments.processes).items():
                    values[case].append(found)
                    print(f"run {number + 1}, {case}: {found[0]:.2f} processor s, {found[1]:.2f} s", flush=True)
    finally:
        sampler.close()
    print(f"\nmedians of {arguments.runs} runs")
    for case, found in values.items():
        processor_s, wall_s = (statistics.median(numbers) for numbers in zip(*found, strict=True))
        print(f"{case} job, processor s: {processor_s:8.2f}")
        print(f"{case} job, s:           {wall_s:8.2f}")


if __name__ == "__main__":
    main()
