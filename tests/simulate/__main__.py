"""``python3 -m tests.simulate grid --seeds 1000``: search for a seed that breaks a promise."""

import argparse
import functools
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulate import grid, life

BATCH = 50
SHOWN_EACH = 10_000
"""Seeds after which it is said how many are done."""


def run_seed(what: str, seed: int) -> tuple[list[str], list[str]]:
    """Return the promises that a seed breaks, and what happened."""
    if what == "life":
        job = life.Simulation(seed)
        return job.run(), job.trace
    file = grid.GridFile()
    try:
        simulation = grid.Simulation(file, seed)
        return simulation.run(), simulation.schedule.trace
    finally:
        file.delete()


def run_seeds(what: str, seeds: range) -> list[tuple[int, list[str]]]:
    if what == "life":
        return [(seed, broken) for seed in seeds if (broken := run_seed(what, seed)[0])]
    # What was imported is not looked through again by each collection of garbage.
    gc.freeze()
    found = []
    file = grid.GridFile()
    for seed in seeds:
        file.clear()
        if broken := grid.Simulation(file, seed).run():
            found.append((seed, broken))
            # A process that is stuck may still have a transaction or a cursor open.
            file = grid.GridFile()
    file.delete()
    return found


def search(what: str, first: int, count: int, *, keeps_on: bool) -> int:
    """Run seeds on all cores; return how many break a promise."""
    began_s = time.monotonic()
    kinds: Counter[str] = Counter()
    failed = 0
    batches = [
        range(at, min(at + BATCH, first + count)) for at in range(first, first + count, BATCH)
    ]
    done = 0
    with ProcessPoolExecutor() as pool:
        for batch, found in zip(
            batches, pool.map(functools.partial(run_seeds, what), batches), strict=True
        ):
            done += len(batch)
            for seed, broken in found:
                failed += 1
                for line in broken:
                    kind = line.partition(":")[0]
                    kinds[kind] += 1
                    if kinds[kind] <= 3:
                        print(f"seed {seed} after {done} seeds: {line}", flush=True)
            if done % SHOWN_EACH == 0:
                print(f"{done:,} seeds, {failed:,} broken", flush=True)
            if failed and not keeps_on:
                pool.shutdown(cancel_futures=True)
                break
    seconds = time.monotonic() - began_s
    print(f"{done:,} seeds, {failed:,} broken, {done / seconds:.0f} seeds/s; {dict(kinds)}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.simulate", description=__doc__)
    parser.add_argument("what", choices=["grid", "life"])
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run one seed and print what happened")
    parser.add_argument("--all", action="store_true", help="do not end at the first broken promise")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        broken, trace = run_seed(arguments.what, arguments.seed)
        print(*trace, *broken, sep="\n")
        return bool(broken)
    return bool(search(arguments.what, arguments.first, arguments.seeds, keeps_on=arguments.all))


if __name__ == "__main__":
    # The order of sets of texts depends on it, and some queries' results do.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulate", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
