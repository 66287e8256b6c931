"""A grid of two machines over HTTP: one home that plays AWS, and another one with a grid's file for each machine."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raysm.contract.home import VARIABLE
from raysm.grid.database import LeaseLost
from raysm.grid.shared.lease import LEASE_S
from raysm.views.grid.handle import attach_grid
from tests.support.embedded_grids import EmbeddedGrid, embedded

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

REGIONS = ("us-east-1", "eu-west-1")
SCENARIO = (Path(__file__).parents[2] / "examples" / "four_regions.toml").read_text()
ROWS = [{"key": f"row-{number}", "region": REGIONS[number % 2]} for number in range(8)]

CONTROLLER = """
import sys, time
from pathlib import Path
from tests.grid.test_shared_over_http import REGIONS, ROWS
from tests.support.embedded_grids import EmbeddedGrid
grid = EmbeddedGrid(Path(sys.argv[1]), REGIONS)
running = grid.open(grid.request(ROWS, shared=True))
running.step(running.clock.now())
print("open", flush=True)
while sys.argv[2] == "holds":
    # It lives, and sends nothing more.
    running._sharing.hold(running.clock.now())
    time.sleep(0.2)
while (wait_s := running.step(running.clock.now())) is not None:
    print("step", running.store.open_count(), flush=True)
    running.clock.sleep(wait_s)
"""


@contextlib.contextmanager
def controller(folder, home, how):
    """Run a controller on a machine of its own, in a process that is killed at the end."""
    environment = os.environ | {VARIABLE: str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(home), how], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def on_machine(folder):
    """Have this process be a machine: what raysm keeps of grids lies there."""
    before = os.environ[VARIABLE]
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ[VARIABLE] = before


def test_a_machine_that_is_killed_is_followed_by_another_one_that_finds_its_jobs(tmp_path):
    with embedded(tmp_path / "aws", SCENARIO) as home:
        with controller(tmp_path / "here", home, "runs") as first:
            assert any(line.startswith("step") and int(line.split()[1]) for line in first.stdout)
        grid = EmbeddedGrid(home, REGIONS)
        # From anywhere, before anybody goes on with it.
        seen = attach_grid("grid", grid.target).status()
        assert sum(seen.states.values()) == len(ROWS)
        with on_machine(tmp_path / "there"):
            began = time.monotonic()
            running = grid.open(grid.request(ROWS, shared=True))
            # Nobody of this machine knows whether that process lives: its silence tells.
            assert time.monotonic() - began > LEASE_S / 2
            running.run()
            names = {attempt.name for attempt in running.store.attempts()}
            assert set(running.store.states()) <= {"done", "failed"}
            prefix = running.store.grid().prefix
            running.close()
        jobs = [job["TrainingJobName"] for jobs in grid.jobs(prefix).values() for job in jobs]
        assert sorted(jobs) == sorted(names)
        assert len(jobs) == len(set(jobs))


def test_while_one_runs_it_another_one_is_told_so_and_can_have_it_stop(tmp_path):
    with embedded(tmp_path / "aws", SCENARIO) as home, controller(tmp_path / "here", home, "holds") as first:
        assert first.stdout.readline() == "open\n"
        grid = EmbeddedGrid(home, REGIONS)
        with on_machine(tmp_path / "there"), pytest.raises(LeaseLost, match="try again when it has ended"):
            grid.open(grid.request(ROWS, shared=True))
        handle = attach_grid("grid", grid.target)
        assert handle.status().state == "open"
        handle.stop()
        deadline = time.monotonic() + 120
        while handle.status().state != "stopping":
            assert time.monotonic() < deadline
            time.sleep(0.5)
