"""``python -m tests.fuzz --minutes 10 [--seed N]``: the similarity against float64, until the time is up.

Problems (``tests.support.problems``) are put to every engine of this machine and to the tasks, on
all cores. Each follows from its seed, which is printed with whatever is wrong. The exit code is 1
where anything was wrong.
"""

import argparse
import itertools
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.comparing import all_comparisons, dense_engines
from tests.support.problems import drawn

__all__ = ["Counts", "compared", "main"]

REPORT_S = 20.0
"""Between two lines that say how far it is."""


@dataclass
class Counts:
    """Comparisons, and those that were wrong, by engine, mode, layout, kind, columns and format of drawn columns."""

    compared: Counter = field(default_factory=Counter)
    wrong: Counter = field(default_factory=Counter)
    problems: int = 0
    complaints: list[str] = field(default_factory=list)

    def add(self, other):
        self.compared.update(other.compared)
        self.wrong.update(other.wrong)
        self.problems += other.problems
        self.complaints += other.complaints

    def count(self, problem, one):
        columns = "drawn" if problem.columns_drawn else "plain"
        keys = [
            ("engine", one.engine),
            ("mode", one.mode),
            ("layout", problem.layout),
            ("kind", problem.kind),
        ]
        keys += [("columns", columns)] + [
            ("format", part.format) for part in problem.parts if problem.columns_drawn
        ]
        keys.append(("all", "all"))
        self.compared.update(keys)
        if one.wrong:
            self.wrong.update(keys)

    @property
    def total(self):
        """How many comparisons there were, and how many of them were wrong, or failed."""
        return self.compared["all", "all"], len(self.complaints)

    def table(self):
        lines = []
        for group in ("engine", "mode", "layout", "kind", "columns", "format"):
            names = sorted(name for found, name in self.compared if found == group)
            width = max(map(len, names), default=0)
            lines += ["", f"{group:<{width}}  comparisons  wrong"]
            lines += [
                f"{n:<{width}}  {self.compared[group, n]:>11,}  {self.wrong[group, n]:>5,}"
                for n in names
            ]
        return lines


def compared(seed, engines=None):
    """Return the counts of one problem; what fails is wrong too. ``engines(columns)`` are those for dense rows."""
    counts, problem = Counts(problems=1), None
    again = f"seed {seed} (again: python -m tests.fuzz --problems 1 --seed {seed})"
    with tempfile.TemporaryDirectory(prefix="raysm-fuzz-") as folder:
        try:
            problem = drawn(seed)
            for one in all_comparisons(problem, Path(folder), engines or dense_engines):
                counts.count(problem, one)
                if one.wrong:
                    counts.complaints.append(
                        f"{again}: {problem}\n    {one.engine}, {one.mode}: {one.wrong}"
                    )
        except Exception:
            counts.complaints.append(f"{again}: {problem}\n{traceback.format_exc()}")
    return counts


def _start():
    """Prepare a process: one thread, and Ctrl-C is answered by the first process alone."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compare(counts, seeds, deadline, report, workers):
    """Compare on several processes. If one dies, the seeds that were under way are a complaint."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    running = {}
    while True:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start) as pool:
            try:
                while time.monotonic() < deadline:
                    for seed in itertools.islice(seeds, workers - len(running)):
                        running[pool.submit(compared, seed)] = seed
                    if not running:
                        return
                    for future in wait(running, 0.5, FIRST_COMPLETED).done:
                        counts.add(future.result())
                        del running[future]
                    report()
                for future in running:
                    counts.add(future.result())
                return
            except BrokenProcessPool:
                counts.complaints.append(
                    f"seeds {', '.join(map(str, running.values()))}: a process died"
                )
                running.clear()
                report()
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise


def main(arguments=None, engines=None):
    """Compare until the time is up; return 1 where anything was wrong, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="how long, at most (default: 10)"
    )
    parser.add_argument(
        "--problems", type=int, default=1 << 40, help="how many, at most (default: no limit)"
    )
    parser.add_argument(
        "--seed", type=int, help="of the first problem (default: drawn, and printed)"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes; 0: this one"
    )
    options = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    counts, begin = Counts(), time.monotonic()
    deadline, last, shown = begin + 60 * options.minutes, begin, 0

    def report():
        nonlocal last, shown
        for complaint in counts.complaints[shown:]:
            print(complaint, flush=True)
        shown = len(counts.complaints)
        if time.monotonic() - last > REPORT_S:
            last = time.monotonic()
            total, wrong = counts.total
            print(
                f"{last - begin:.0f} s: {counts.problems:,} problems, {total:,} comparisons, {wrong} wrong",
                flush=True,
            )

    try:
        print(f"problems from seed {first} on", flush=True)
        seeds = iter(range(first, first + options.problems))
        if options.workers:
            _compare(counts, seeds, deadline, report, options.workers)
        else:
            for seed in itertools.takewhile(lambda seed: time.monotonic() < deadline, seeds):
                counts.add(compared(seed, engines))
                report()
    except KeyboardInterrupt:
        print("stopped", flush=True)
    report()
    (total, wrong), took = counts.total, time.monotonic() - begin
    print("\n".join(counts.table()))
    print(
        f"\n{total:,} comparisons of {counts.problems:,} problems in {took:.0f} s, {wrong} wrong (seed {first})"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
