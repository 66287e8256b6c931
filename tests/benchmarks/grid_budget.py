"""Whether a grid's budget holds: scenarios by chance under a clock of their own, with retries and lost answers.

    python3 tests/benchmarks/grid_budget.py [--scenarios 1000] [--first 0]

What is printed is the largest share of a budget that was billed, by the books of the fake service. The issue asks for
1,000 scenarios of which none exceeds its budget; 10 of them are run with the tests, and 60 with the long ones.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.budgets import budget_used


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--scenarios", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    began_s, shares = time.process_time(), {}
    for seed in range(asked.first, asked.first + asked.scenarios):
        with tempfile.TemporaryDirectory() as folder:
            shares[seed] = budget_used(Path(folder), seed)
    exceeded = [seed for seed, share in shares.items() if share > 1]
    print(f"budgets exceeded: {len(exceeded)} of {len(shares)} {exceeded[:10]}")
    print(f"the largest share of a budget that was billed: {max(shares.values()):.3f}")
    print(f"CPU, s: {time.process_time() - began_s:.0f}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
