"""``python -m tests.fuzz --minutes 10 [--seed N]``: the similarity against float64, until the time is up.

Problems of all kinds of rows, types, formats and layouts, with columns that are named, ordered and chosen at random
(``tests.support.problems``), are put to every engine that this
machine has and to the tasks (``tests.support.comparing``), on all cores. Each follows from its seed, which is printed
with whatever is wrong; Ctrl-C ends it early. The exit code is 1 where anything was wrong.
"""

import argparse
import multiprocessing
import os
import queue
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.comparing import all_comparisons, dense_engines
from tests.support.problems import drawn

__all__ = ["Counts", "compared", "main"]

REPORT_S = 20.0
"""Between two lines that say how far it is."""

PATIENCE_S = 60.0
"""After the end, for each process to finish its problem."""


@dataclass
class Counts:
    """Comparisons, and those that were wrong, by engine, mode, layout, kind, columns and format of drawn columns."""

    compared: Counter = field(default_factory=Counter)
    wrong: Counter = field(default_factory=Counter)
    problems: int = 0
    complaints: list[str] = field(default_factory=list)

    def add(self, other):
        """Take in those of one more problem."""
        self.compared.update(other.compared)
        self.wrong.update(other.wrong)
        self.problems += other.problems
        self.complaints += other.complaints

    def count(self, problem, one):
        """Count one comparison."""
        columns = "drawn" if problem.columns_drawn else "plain"
        keys = [("engine", one.engine), ("mode", one.mode), ("layout", problem.layout), ("kind", problem.kind)]
        keys += [("columns", columns)] + [("format", part.format) for part in problem.parts if problem.columns_drawn]
        keys.append(("all", "all"))
        self.compared.update(keys)
        if one.wrong:
            self.wrong.update(keys)

    @property
    def total(self):
        """How many comparisons there were, and how many of them were wrong, or failed."""
        return self.compared["all", "all"], len(self.complaints)

    def table(self):
        """Return the counts as lines."""
        lines = []
        for group in ("engine", "mode", "layout", "kind", "columns", "format"):
            names = sorted(name for found, name in self.compared if found == group)
            width = max(map(len, names), default=0)
            lines += ["", f"{group:<{width}}  comparisons  wrong"]
            lines += [f"{n:<{width}}  {self.compared[group, n]:>11,}  {self.wrong[group, n]:>5,}" for n in names]
        return lines


def compared(seed, engines=None):
    """Return the counts of one problem; what fails is wrong too.

    Args:
        seed: The problem's.
        engines: Called with the number of columns, it returns the engines for dense rows by name; None is all.
    """
    counts, problem = Counts(problems=1), None
    again = f"seed {seed} (again: python -m tests.fuzz --problems 1 --seed {seed})"
    with tempfile.TemporaryDirectory(prefix="raysm-fuzz-") as folder:
        try:
            problem = drawn(seed)
            for one in all_comparisons(problem, Path(folder), engines or dense_engines):
                counts.count(problem, one)
                if one.wrong:
                    counts.complaints.append(f"{again}: {problem}\n    {one.engine}, {one.mode}: {one.wrong}")
        except Exception:
            counts.complaints.append(f"{again}: {problem}\n{traceback.format_exc()}")
    return counts


def _work(seeds, current, results, stop):
    """Compare one problem after the other, in a process of its own."""
    import torch

    torch.set_num_threads(1)
    for seed in seeds:
        if stop.is_set():
            break
        current.value = seed
        results.put(compared(seed))


def _compare_here(counts, first, problems, deadline, report, engines):
    for seed in range(first, first + problems):
        counts.add(compared(seed, engines))
        report()
        if time.monotonic() > deadline:
            break


def _compare_in_processes(counts, first, problems, deadline, report, workers):
    """Compare on several processes. One that dies is a complaint, with its seed."""
    spawning = multiprocessing.get_context("spawn")
    results, stop = spawning.Queue(), spawning.Event()
    # Ctrl-C is answered here: those that are started inherit that it is held back, and that each has one thread.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    running = {}
    for at in range(workers):
        current = spawning.Value("q", first + at)
        seeds = range(first + at, first + problems, workers)
        process = spawning.Process(target=_work, args=(seeds, current, results, stop), daemon=True)
        process.start()
        running[process] = current
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        _take_until(deadline, counts, running, results, report)
    finally:
        stop.set()
        _take_until(time.monotonic() + PATIENCE_S, counts, running, results, report)
        for process in running:
            process.terminate()
            process.join()


def _take_until(deadline, counts, running, results, report):
    """Take in results until none comes any more, or the time is up; who has ended is no more among ``running``."""
    while running and time.monotonic() < deadline:
        ended = [process for process in running if process.exitcode is not None]
        # Whatever a process has put was put before it ended.
        found = _next(results)
        while found is not None:
            counts.add(found)
            found = _next(results)
        for process in ended:
            seed = running.pop(process).value
            if process.exitcode:
                counts.complaints.append(f"seed {seed}: the process died, exit code {process.exitcode}")
        report()


def _next(results):
    """Return the next counts, or None where there are none for a while."""
    try:
        return results.get(timeout=0.5)
    except queue.Empty:
        return None


def main(arguments=None, engines=None):
    """Compare until the time is up; return 1 where anything was wrong, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, at most (default: 10)")
    parser.add_argument("--problems", type=int, default=1 << 40, help="how many, at most (default: no limit)")
    parser.add_argument("--seed", type=int, help="of the first problem (default: drawn, and printed)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; 0: this one")
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
                f"{last - begin:.0f} s: {counts.problems:,} problems, {total:,} comparisons, {wrong} wrong", flush=True
            )

    try:
        print(f"problems from seed {first} on", flush=True)
        if options.workers:
            _compare_in_processes(counts, first, options.problems, deadline, report, options.workers)
        else:
            _compare_here(counts, first, options.problems, deadline, report, engines)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    report()
    (total, wrong), took = counts.total, time.monotonic() - begin
    print("\n".join(counts.table()))
    print(f"\n{total:,} comparisons of {counts.problems:,} problems in {took:.0f} s, {wrong} wrong (seed {first})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
