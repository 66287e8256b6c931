"""What the controller of a grid costs by itself: many rows over four regions, under a clock of its own.

python3 tests/benchmarks/grid.py [--rows 100000]
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from raysm.features.grid.limiter import Rate
from raysm.features.grid.rules import Rules
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench

GOALS = {"CPU, s": 90.0, "memory, MB": 400.0, "store, MB": 200.0}
"""Of 100,000 rows, at most."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    asked = parser.parse_args()
    rates = {
        operation: Rate(per_s=20, burst=200) for operation in ("create", "list", "describe", "stop")
    }
    regions = {f"r-{number}": Behaviour(start_s=60, run_s=120) for number in range(4)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        began_s = time.process_time()
        bench = Bench(
            folder,
            rows=asked.rows,
            regions=regions,
            rates=rates,
            rules=Rules(brake=0, parallel=20_000),
        )
        bench.run()
        figures = {
            "CPU, s": time.process_time() - began_s,
            "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "store, MB": (folder / "g.db").stat().st_size / 1e6,
        }
        assert bench.states() == {"done": asked.rows}, bench.states()
    for name, value in figures.items():
        print(f"{name}: {value:,.1f} of {asked.rows:,} rows (goal of 100,000: {GOALS[name]:,.0f})")
    return (
        1
        if asked.rows >= 100_000 and any(figures[name] > goal for name, goal in GOALS.items())
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
