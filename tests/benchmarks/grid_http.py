"""How much of the service's rates a grid uses over HTTP, and whether it loses a row to them.

    python3 tests/benchmarks/grid_http.py [--rows 1000] [--speed 5]

The embedded server plays four regions, of which each answers List 0.5 and Create 0.2 times a second, on a clock that
runs faster; jobs are simulated. The grid believes in its own rates, and learns these by being refused. What is printed
is the share of the Creates that were allowed between the first and the last job; the issue asks for 0.9 of 1,000 rows.
A server that is too slow for its fast clock (some 10 jobs a second of this machine's) makes the share smaller.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.embedded_grids import EmbeddedGrid, embedded

GOAL = 0.9
CREATES_PER_S = 0.2
REGIONS = ("us-east-1", "eu-west-1", "us-west-2", "eu-central-1")

SCENARIO = """
speed = {speed}

[api]
rates = {{ ListTrainingJobs = 0.5, CreateTrainingJob = 0.2 }}

[capacity]
start_delay_s = 60

[simulated]
run_s = 120

[market]
usd_per_hour = {{ "ml.g5.xlarge" = 1.5 }}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--speed", type=float, default=5.0)
    asked = parser.parse_args()
    rows = [{"key": f"row-{number}", "region": REGIONS[number % len(REGIONS)]} for number in range(asked.rows)]
    with (
        tempfile.TemporaryDirectory() as temporary,
        embedded(Path(temporary) / "home", SCENARIO.format(speed=asked.speed)) as home,
    ):
        began_s = time.monotonic()
        grid = EmbeddedGrid(home, REGIONS)
        running = grid.run(grid.request(rows))
        states, attempts = running.store.states(), running.store.attempts()
        running.close()
    sent_s = [attempt.sent_s for attempt in attempts]
    share = (len(sent_s) - len(REGIONS)) / (max(sent_s) - min(sent_s)) / (len(REGIONS) * CREATES_PER_S)
    refused = sum(attempt.calls - 1 for attempt in attempts)
    print(f"rows: {states}, jobs: {len(attempts)}, Creates that were refused for their rate: {refused}")
    print(f"share of the allowed rate: {share:.3f} (goal of 1,000 rows: {GOAL})")
    print(
        f"took {time.monotonic() - began_s:.0f} s of this machine, {max(sent_s) - min(sent_s):.0f} s of the service's"
    )
    is_whole = states == {"done": asked.rows} and len(attempts) == asked.rows
    return 0 if is_whole and (share >= GOAL or asked.rows < 1000) else 1


if __name__ == "__main__":
    sys.exit(main())
